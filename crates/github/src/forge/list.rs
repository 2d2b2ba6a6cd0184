//! The list of runners.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ondeck_core::ports::{ListedRunner, PortError, PortResult};
use serde::Deserialize;

use super::Scope;
use crate::auth::Identity;
use crate::client::{Purpose, Request};
use crate::names::instance_of;

/// How many are asked for at a time: as many as GitHub gives.
pub(super) const PAGE: usize = 100;
/// An organisation may have ten thousand runners.
const PAGES: usize = 100;

/// This pool's part of the list, and what it was when it was taken last.
pub(super) struct List {
    mark: String,
    ids: Mutex<BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
pub(super) struct Page {
    pub(super) runners: Vec<Runner>,
}

#[derive(Deserialize)]
pub(super) struct Runner {
    id: u64,
    pub(super) name: String,
    status: String,
}

impl List {
    /// The part of the list that carries this mark.
    pub(super) fn new(mark: String) -> List {
        List { mark, ids: Mutex::default() }
    }

    /// Reads all of it. One that is missed because others went while it was read will be seen the
    /// next time.
    pub(super) async fn take(
        &self,
        manager: &Identity,
        scope: &Scope,
    ) -> PortResult<Vec<ListedRunner>> {
        let (mut listed, mut ids) = (Vec::new(), BTreeMap::new());
        for number in 1..=PAGES {
            let request = list(scope).with("page", &number);
            let answer = manager.ask(&request).await?;
            if !answer.is_success() {
                return Err(manager.complaint(&request, &answer));
            }
            let page: Page = answer.read(&request)?;
            for Runner { id, name, status } in page.runners {
                let Some((instance, _)) = instance_of(&name, &self.mark) else { continue };
                // The same one may stand on two pages, if the list has grown in between.
                if ids.insert(name.clone(), id).is_none() {
                    listed.push(ListedRunner { name, instance, online: status == "online" });
                }
            }
            if !answer.has_next() {
                break;
            }
        }
        *self.ids.lock().unwrap_or_else(PoisonError::into_inner) = ids;
        Ok(listed)
    }

    /// Strikes one off.
    pub(super) async fn strike(
        &self,
        manager: &Identity,
        scope: &Scope,
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
            _ => return Err(manager.complaint(&request, &answer)),
        }
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }
}

fn list(scope: &Scope) -> Request<'_> {
    let path = format!("{}/actions/runners", scope.path());
    Request::get(Purpose::Runners(scope), path).with("per_page", &PAGE)
}

/// The number behind a name. Servers that cannot search by name give the first page of all.
async fn find(manager: &Identity, scope: &Scope, name: &str) -> PortResult<Option<u64>> {
    let page: Page = manager.get(&list(scope).with("name", &name)).await?;
    Ok(page.runners.into_iter().find(|runner| runner.name == name).map(|runner| runner.id))
}

fn busy(name: &str, aside: &str) -> PortError {
    PortError::Forge {
        reason: format!("the runner is busy and stays on the list: {name}{aside}"),
        hint: "its job ends first, or is cancelled; the next refresh tries again".to_owned(),
    }
}
