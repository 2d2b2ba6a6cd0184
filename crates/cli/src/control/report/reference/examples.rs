//! Outcomes that are serialised by the same code as real ones, for the page.

use std::time::Duration;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, ResourceClass, RunId};
use ondeck_core::model::record::Counts;
use ondeck_core::model::record::{MachineSpec, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision::{
    MachineSource, Milestones, Outcome, PoolSearch, Provisioned, Timings,
};
use ondeck_core::modes::{refresh, release};

use crate::control::report::Report;
use crate::control::report::failure::FailureJson;
use crate::control::report::permissions::{
    CheckRow, ExpectedDecision, PermissionsReport, RowResult,
};
use crate::control::report::wire::to_json;
use crate::control::status::Snapshot;

/// Examples of one output: what they show, and the JSON as the program prints it.
pub(super) fn of(name: &str) -> Vec<(&'static str, String)> {
    match name {
        "provision" => vec![
            ("Success", provisioned().json()),
            ("Failure", Outcome { instances: Vec::new(), ..refused() }.json()),
        ],
        "release" => vec![("Success", released().json())],
        "refresh" => vec![("Success", refreshed().json())],
        "permissions" => vec![("Example", checked().json())],
        "status" => vec![("Example", snapshot().json())],
        _ => vec![("Example", to_json(&FailureJson::from(&not_set_up())))],
    }
}

fn checked() -> PermissionsReport {
    let check = |call: &str, what: &str, expected, result, answer: &str| CheckRow {
        call: call.to_owned(),
        what: what.to_owned(),
        expected,
        result,
        answer: answer.to_owned(),
    };
    let (denied, allowed) = (ExpectedDecision::Denied, ExpectedDecision::Allowed);
    PermissionsReport {
        role: "release".to_owned(),
        checks: vec![
            check(
                "dynamodb:GetItem",
                "the registration token",
                denied,
                RowResult::AsExpected,
                "denied: AccessDeniedException",
            ),
            check("dynamodb:Scan", "the whole table", denied, RowResult::Wrong, "allowed"),
            check(
                "ec2:TerminateInstances",
                "a machine whose time is up",
                allowed,
                RowResult::Skipped,
                "needs machines of the pool that are up",
            ),
        ],
    }
}

fn id(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

fn run() -> RunId {
    RunId::new("16203894417").unwrap()
}

fn spec() -> MachineSpec {
    MachineSpec {
        resource_class: ResourceClass::new("large").unwrap(),
        instance_type: "c6i.large".to_owned(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mem: 4096,
    }
}

fn not_set_up() -> Failure {
    Failure::new(FailureKind::NotSetUp, "not set up: there is no store at .ondeck/ondeck.db")
        .hint("run ondeck refresh first")
}

fn provisioned() -> Outcome {
    let after = Duration::from_millis;
    let machine =
        |name: &str, source, [owned, registered, ready]: [u64; 3], why: &str| Provisioned {
            id: id(name),
            source,
            spec: spec(),
            milestones: Milestones {
                found: (source == MachineSource::Warm).then(|| after(2)),
                owned: after(owned),
                registered: after(registered),
                ready: after(ready),
            },
            why: why.to_owned(),
        };
    Outcome {
        run: run(),
        requested: 2,
        usage: UsageClass::OnDemand,
        instances: vec![
            machine("i-05d35621a67a63d93", MachineSource::Warm, [2, 38, 86], "idle, matches c*"),
            machine(
                "i-0f2d05043267dce69",
                MachineSource::Cold,
                [100, 2099, 2286],
                "the pool had only 1",
            ),
        ],
        timings: Timings {
            adoption: after(1),
            selection: after(85),
            creation: after(15),
            validation: after(2185),
            post_provision: after(2),
            total: after(2288),
        },
        search: PoolSearch { asked: true, tickets: 1, claimed: 1, ..PoolSearch::default() },
        failure: None,
        terminated: Vec::new(),
        returned: Vec::new(),
        kept: Vec::new(),
        clean_up_failures: Vec::new(),
    }
}

fn refused() -> Outcome {
    let failure = Failure::new(
        FailureKind::NoCapacity,
        "not enough capacity, 0 of 1 machines launched: InsufficientInstanceCapacity",
    );
    Outcome {
        failure: Some(failure.hint("allow more instance types, or use --capacity-fallback")),
        returned: vec![id("i-05d35621a67a63d93")],
        ..provisioned()
    }
}

fn released() -> release::Outcome {
    let machine = |name: &str, disposition| release::Released {
        id: id(name),
        spec: spec(),
        disposition,
        used_for: Some(Duration::from_secs(312)),
        account: "1 job".to_owned(),
    };
    release::Outcome {
        run: run(),
        instances: vec![
            machine("i-05d35621a67a63d93", release::Disposition::Pooled),
            machine("i-0f2d05043267dce69", release::Disposition::Terminated),
        ],
        unreadable: Vec::new(),
        took: Duration::from_millis(412),
    }
}

fn refreshed() -> refresh::Outcome {
    refresh::Outcome {
        reaped: vec![id("i-0ae4afa3f007cd3b0")],
        offline_runners: vec!["i-0ae4afa3f007cd3b0-1".to_owned()],
        ..refresh::Outcome::default()
    }
}

fn snapshot() -> Snapshot {
    let at = |text: &str| Timestamp::parse(text).unwrap();
    let record = Record {
        id: id("i-05d35621a67a63d93"),
        state: State::Running,
        run: Some(run()),
        threshold: Some(at("2026-01-31T13:00:00.000Z")),
        spec: spec(),
        created_at: at("2026-01-31T11:20:00.000Z"),
        updated_at: at("2026-01-31T12:00:00.000Z"),
        ticketed_at: None,
        settings_version: None,
        reuse: ondeck_core::model::reuse::Reuse::Always,
        suffix: None,
        counts: Counts::default(),
    };
    let beat = Heartbeat::new(at("2026-01-31T12:04:58.800Z"), Duration::from_secs(5));
    let status = AgentStatus { heartbeat: Some(beat), ..AgentStatus::default() };
    Snapshot {
        now: at("2026-01-31T12:05:00.000Z"),
        instances: vec![(record, status)],
        pool: vec![("large".to_owned(), 3)],
        unreadable: Vec::new(),
    }
}
