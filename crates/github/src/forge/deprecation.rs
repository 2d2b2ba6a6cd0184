//! Until when GitHub lets a version of actions/runner register and take jobs.

use std::time::Duration;

use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::PortResult;
use serde_json::Value;

use super::GitHubForge;
use super::software::setting;
use crate::client::{Purpose, Request, parse_time};
use crate::packages::VERSION_SETTING;
use crate::version::Version;

/// How long before a deadline the operator is warned.
const EARLY: Duration = Duration::from_secs(14 * 24 * 3600);

/// The deadlines of a version. `None` where GitHub has not set one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Deadlines {
    registration: Option<Timestamp>,
    jobs: Option<Timestamp>,
}

/// Returns a warning if GitHub stops serving the version soon, or gives it no jobs any more. Fails if
/// it cannot register any more. A GitHub that does not tell the deadlines is no failure: older servers
/// do not know the request.
pub(super) async fn check(forge: &GitHubForge, version: Version) -> PortResult<Option<String>> {
    let deadlines = deadlines(forge, version).await;
    deadlines.judge(version, forge.clock.now()).map_err(setting)
}

async fn deadlines(forge: &GitHubForge, version: Version) -> Deadlines {
    let path = format!("{}/actions/runners/deprecations/{version}", forge.scope.path());
    let request = Request::get(Purpose::Runners(&forge.scope), path);
    match forge.manager.ask(&request).await {
        Ok(answer) if answer.is_success() => match answer.read::<Value>(&request) {
            Ok(body) => Deadlines::read(&body),
            Err(error) => unknown(version, &error.to_string()),
        },
        Ok(answer) => unknown(version, &format!("status {}", answer.status)),
        Err(error) => unknown(version, &error.to_string()),
    }
}

fn unknown(version: Version, why: &str) -> Deadlines {
    tracing::debug!(%version, "GitHub does not say how long it serves the runner: {why}");
    Deadlines::default()
}

impl Deadlines {
    /// Reads GitHub's answer. What is not a time counts as not set.
    fn read(body: &Value) -> Deadlines {
        let time = |name: &str| body.get(name)?.as_str().and_then(parse_time);
        Deadlines {
            registration: time("registration_deprecates_at"),
            jobs: time("runtime_deprecates_at"),
        }
    }

    /// Returns a warning, or fails with the reason why the version cannot be used at `now`.
    fn judge(&self, version: Version, now: Timestamp) -> Result<Option<String>, String> {
        let remedy = "set it to latest";
        if let Some(at) = self.registration.filter(|at| *at <= now) {
            return Err(format!(
                "names a version that GitHub has not let register since {at}, {remedy}: {version}"
            ));
        }
        if let Some(at) = self.jobs.filter(|at| *at <= now) {
            return Ok(Some(format!(
                "{VERSION_SETTING} names a version that GitHub gives no jobs since {at}, {remedy}: \
                 {version}"
            )));
        }
        let next = [self.registration, self.jobs].into_iter().flatten().min();
        let soon = next.filter(|at| at.before(EARLY) <= now);
        Ok(soon.map(|at| {
            format!("{VERSION_SETTING} names a version that GitHub serves until {at}, {remedy}: {version}")
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VERSION: Version = Version(2, 336, 0);

    fn judged(registration: &Value, jobs: &Value) -> Result<Option<String>, String> {
        let body = json!({
            "runner_version": "2.336.0",
            "registration_deprecates_at": registration,
            "runtime_deprecates_at": jobs,
        });
        let now = Timestamp::parse("2026-11-01T00:00:00Z").unwrap();
        Deadlines::read(&body).judge(VERSION, now)
    }

    #[test]
    fn a_deadline_is_judged_by_how_near_it_is() {
        let (past, soon) = (json!("2026-10-31T00:00:00Z"), json!("2026-11-14T23:00:00Z"));
        let later = json!("2026-11-15T01:00:00+00:00");
        assert_eq!(judged(&Value::Null, &Value::Null), Ok(None));
        assert_eq!(judged(&later, &later), Ok(None));
        let warning = |registration, jobs| judged(registration, jobs).unwrap().unwrap();
        for (registration, jobs) in [(&soon, &later), (&later, &soon), (&Value::Null, &soon)] {
            let told = warning(registration, jobs);
            let said = "actions-runner-version names a version that GitHub serves until \
                        2026-11-14T23:00:00.000Z, set it to latest: 2.336.0";
            assert_eq!(told, said);
        }
        let told = warning(&later, &past);
        assert!(told.contains("gives no jobs since 2026-10-31T00:00:00.000Z"), "{told}");
        let refused = judged(&past, &Value::Null).unwrap_err();
        assert!(refused.contains("has not let register since 2026-10-31"), "{refused}");
    }

    #[test]
    fn an_answer_of_another_shape_tells_no_deadline() {
        for body in [json!(null), json!([]), json!({}), json!({ "runtime_deprecates_at": 7 })] {
            assert_eq!(Deadlines::read(&body), Deadlines::default(), "{body}");
        }
        assert_eq!(judged(&json!("soon"), &json!("")), Ok(None));
    }
}
