//! GitHub's list of runners.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ondeck_core::ports::{ListedRunner, PortError, PortResult};
use serde::Deserialize;

use super::RunnerScope;
use crate::auth::Identity;
use crate::client::{Purpose, Request};
use crate::names::instance_of;

/// The page size: the largest that GitHub allows.
pub(super) const PAGE: usize = 100;
/// Enough pages for the ten thousand runners that an organisation may have.
const PAGES: usize = 100;

/// The runners of one pool, with GitHub's ids of those that were listed last.
pub(super) struct RunnerList {
    pool_tag: String,
    ids: Mutex<BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
pub(super) struct RunnersPage {
    pub(super) runners: Vec<RunnerEntry>,
}

#[derive(Deserialize)]
pub(super) struct RunnerEntry {
    id: u64,
    pub(super) name: String,
    status: String,
}

impl RunnerList {
    /// The runners whose names end in this tag.
    pub(super) fn new(pool_tag: String) -> RunnerList {
        RunnerList { pool_tag, ids: Mutex::default() }
    }

    /// What the names of this pool's runners end in.
    pub(super) fn pool_tag(&self) -> &str {
        &self.pool_tag
    }

    /// Returns every runner of this pool. May miss one if other runners are removed while the pages are
    /// read; the next call returns it.
    pub(super) async fn read(
        &self,
        manager: &Identity,
        scope: &RunnerScope,
    ) -> PortResult<Vec<ListedRunner>> {
        let (mut listed, mut ids) = (Vec::new(), BTreeMap::new());
        for number in 1..=PAGES {
            let request = list(scope).with("page", &number);
            let answer = manager.ask(&request).await?;
            if !answer.is_success() {
                return Err(manager.error_for(&request, &answer));
            }
            let page: RunnersPage = answer.read(&request)?;
            for RunnerEntry { id, name, status } in page.runners {
                let Some((instance, number)) = instance_of(&name, &self.pool_tag) else { continue };
                // A runner is on two pages if the list grows between the requests.
                if ids.insert(name.clone(), id).is_none() {
                    let online = status == "online";
                    listed.push(ListedRunner { name, instance, number, online });
                }
            }
            if !answer.has_next() {
                break;
            }
        }
        *self.ids.lock().unwrap_or_else(PoisonError::into_inner) = ids;
        Ok(listed)
    }

    /// Removes a runner by name. Succeeds if GitHub does not list it. Fails if it is busy.
    pub(super) async fn remove(
        &self,
        manager: &Identity,
        scope: &RunnerScope,
        name: &str,
    ) -> PortResult<()> {
        let known = self.ids.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        let id = match known {
            Some(id) => id,
            None => match find(manager, scope, name).await? {
                Some(id) => id,
                None => return Ok(()),
            },
        };
        let path = format!("{}/actions/runners/{id}", scope.path());
        let request = Request::delete(Purpose::Runners(scope), path);
        let answer = manager.ask(&request).await?;
        match answer.status {
            404 => {}
            _ if answer.is_success() => {}
            422 => return Err(busy(name, &answer.aside())),
            _ => return Err(manager.error_for(&request, &answer)),
        }
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }
}

fn list(scope: &RunnerScope) -> Request<'_> {
    let path = format!("{}/actions/runners", scope.path());
    Request::get(Purpose::Runners(scope), path).with("per_page", &PAGE)
}

/// Looks up a runner's id by name. Servers that do not know the `name` parameter return the first
/// page of the whole list, so the names are compared here.
async fn find(manager: &Identity, scope: &RunnerScope, name: &str) -> PortResult<Option<u64>> {
    let page: RunnersPage = manager.get(&list(scope).with("name", &name)).await?;
    Ok(page.runners.into_iter().find(|runner| runner.name == name).map(|runner| runner.id))
}

fn busy(name: &str, aside: &str) -> PortError {
    PortError::Forge {
        reason: format!("the runner is busy and stays on the list: {name}{aside}"),
        hint: "wait for its job or cancel it; the next refresh tries again".to_owned(),
    }
}
