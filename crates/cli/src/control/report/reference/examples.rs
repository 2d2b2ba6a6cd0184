//! Outcomes that are serialised by the same code as real ones, for the page.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::inputs::Given;
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, ResourceClass, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::record::{Counts, EventRow, MachineSpec, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::settings::{APPLIED_CONFIG, Settings};
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::summary::{
    CallEnding, CallOrigin, CallResult, Phases, ProvisionSummary, SearchCounts,
};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::explain::{MachineOfRun, RunStory, Step, Story, Typical};
use ondeck_core::modes::provision::{
    MachineSource, Milestones, Outcome, PoolSearch, ProvisionOptions, Provisioned, Timings,
};
use ondeck_core::modes::status::Reading;
use ondeck_core::modes::status::judgement::judge;
use ondeck_core::modes::{operate, refresh, release, teardown};
use ondeck_core::ports::{Resource, ResourceKind};

use crate::control::applied::{Applied, Enforcement};
use crate::control::report::Report;
use crate::control::report::apply::{ApplyReport, ApplyResult, SettingChange};
use crate::control::report::config::{CheckReport, ExportReport, FileProblem, PoolDigest};
use crate::control::report::cost::example as cost_example;
use crate::control::report::doctor::{self, DoctorReport};
use crate::control::report::drill::tests::example as drill_example;
use crate::control::report::explain::ExplainReport;
use crate::control::report::failure::FailureJson;
use crate::control::report::machines::MachinesReport;
use crate::control::report::permissions::{
    CheckRow, ExpectedDecision, PermissionsReport, RowResult,
};
use crate::control::report::pool::PoolReport;
use crate::control::report::refresh::RefreshReport;
use crate::control::report::show::{Origin, ShowReport, ShowRow, StoredConfiguration};
use crate::control::report::simulate::example as simulate_example;
use crate::control::report::status::Shown;
use crate::control::report::teardown::{Leftover, TeardownReport};
use crate::control::report::wire::to_json;
use crate::inputs::Common;

/// Examples of one output: what they show, and the JSON as the program prints it.
pub(super) fn of(name: &str) -> Vec<(&'static str, String)> {
    match name {
        "provision" => vec![
            ("Success", provisioned().json()),
            ("Failure", Outcome { instances: Vec::new(), ..refused() }.json()),
        ],
        "release" => vec![("Success", released().json())],
        "refresh" => vec![("Success", refreshed().json())],
        "config-check" => {
            vec![("Success", file_checked().json()), ("Failure", file_refused().json())]
        }
        "config-show" => vec![("With `--stored`", file_shown().json())],
        "config-export" => vec![(
            "Example",
            ExportReport { text: "[times]\nidle-time-sec = 900\n".to_owned() }.json(),
        )],
        "apply" => vec![("Success", applied().json())],
        "permissions" => vec![("Example", checked().json())],
        "drain" | "retire" | "terminate" => vec![("Example", changed(name).json())],
        "pool" => vec![("Example", looked_at().json())],
        "teardown" => vec![("Success", torn_down().json())],
        "status" => vec![("Example", status().json())],
        "cost" => vec![("Example", cost_example().json())],
        "simulate" => vec![("Example", simulate_example().json())],
        "explain" => vec![("A run", explained().json())],
        "drill" => vec![("With an expectation that was not met", drill_example().json())],
        "doctor" => vec![("With an error", examined().json())],
        _ => vec![("Example", to_json(&FailureJson::from(&not_set_up())))],
    }
}

fn changed(command: &str) -> MachinesReport {
    let (name, command, action) = match command {
        "drain" => ("drain", operate::Command::Drain, operate::Action::LeaveAfterRun),
        "retire" => ("retire", operate::Command::Retire, operate::Action::Replace),
        _ => ("terminate", operate::Command::Terminate, operate::Action::TakeFromRun),
    };
    let spec = MachineSpec {
        resource_class: "large".parse().unwrap(),
        instance_type: "c6i.large".to_owned(),
        usage_class: "spot".parse().unwrap(),
        cpu: 2,
        mem: 4096,
    };
    let order = operate::Order {
        command,
        selection: operate::Selection::default(),
        force: false,
        wait: std::time::Duration::ZERO,
        actor: "alice".to_owned(),
        reason: "disk errors".to_owned(),
    };
    let machine = operate::Affected {
        id: id("i-0123456789abcdef0"),
        spec,
        state: State::Running,
        run: Some("42".parse().unwrap()),
        is_gone: action == operate::Action::TakeFromRun,
        action,
        changed_meanwhile: false,
        error: None,
    };
    let outcome = operate::Outcome { machines: vec![machine], ..operate::Outcome::default() };
    MachinesReport::new(name, &order, outcome)
}

fn looked_at() -> PoolReport {
    let seen = operate::tickets::SeenTicket {
        ticket: None,
        truth: operate::tickets::Truth::Unreadable("malformed ticket".to_owned()),
    };
    let class = operate::tickets::ClassTickets {
        class: "large".parse().unwrap(),
        depth: ondeck_core::ports::Depth { visible: 1, held: 0, delayed: 0 },
        tickets: vec![seen],
        unannounced: vec![id("i-0123456789abcdef0")],
        deleted: 1,
        announced: vec![id("i-0123456789abcdef0")],
    };
    let outcome =
        operate::tickets::Outcome { classes: vec![class], ..operate::tickets::Outcome::default() };
    PoolReport { repairs: true, outcome }
}

fn examined() -> DoctorReport {
    DoctorReport::on(doctor::tests::example(), None)
}

fn explained() -> ExplainReport {
    let at =
        |seconds| Timestamp::parse("2025-05-31T12:00:00Z").unwrap() + Duration::from_secs(seconds);
    let event = |seconds, transition: &str, from, to| Step::Event {
        event: EventRow {
            instance: id("i-0123456789abcdef0"),
            at: at(seconds),
            transition: transition.to_owned(),
            from,
            to,
            run: Some(run()),
            why: String::new(),
        },
        before: None,
    };
    let call = ProvisionSummary {
        run: run(),
        origin: CallOrigin::Run,
        began: at(0),
        at: at(2),
        asked: ProvisionOptions::default(),
        search: SearchCounts { asked: true, tickets: 1, claimed: 1, ..SearchCounts::default() },
        candidates: Vec::new(),
        hedges: Vec::new(),
        launches: Vec::new(),
        waits: Vec::new(),
        machines: Vec::new(),
        phases: Phases { selection_ms: Some(1_900), total_ms: 2_000, ..Phases::default() },
        ending: CallEnding { result: CallResult::HandingOver, ..CallEnding::default() },
        omitted: 0,
    };
    let steps = vec![
        event(1, "claim", Some(State::Idle), State::Claimed),
        event(2, "commit", Some(State::Claimed), State::Running),
    ];
    let (id, status) = (id("i-0123456789abcdef0"), AgentStatus::default());
    let machine = MachineOfRun { id, steps, record: None, status, sight: None };
    ExplainReport::of(Story::Run(Box::new(RunStory {
        label: Label::from(&run()),
        now: at(60),
        demands: Vec::new(),
        calls: vec![call],
        machines: vec![machine],
        open_launches: Vec::new(),
        unread_before: None,
        typical: Typical::default(),
    })))
}

fn torn_down() -> TeardownReport {
    let resource = |kind, name: &str| Resource { kind, name: name.to_owned() };
    let outcome = teardown::Outcome {
        machines: vec![id("i-0123456789abcdef0")],
        runners: vec!["i-0123456789abcdef0-3".to_owned()],
        resources: vec![
            resource(ResourceKind::LaunchTemplate, "ondeck-acme-web-5f0b9d3c"),
            resource(ResourceKind::Queue, "ondeck-acme-web-5f0b9d3c-large"),
            resource(ResourceKind::WakeUpQueue, "ondeck-acme-web-5f0b9d3c_i-0123456789abcdef0"),
            resource(ResourceKind::Table, "ondeck-acme-web-5f0b9d3c"),
        ],
        ..teardown::Outcome::default()
    };
    let stack = Leftover {
        what: "roles and network, if they were created from infra/cloudformation.yaml".to_owned(),
        command: "aws cloudformation delete-stack --stack-name STACK --region us-east-1".to_owned(),
    };
    TeardownReport::new("acme/web", outcome, vec![stack])
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
            label: run().to_string(),
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
        label: (&run()).into(),
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

fn refreshed() -> RefreshReport {
    let outcome = refresh::Outcome {
        reaped: vec![id("i-0ae4afa3f007cd3b0")],
        offline_runners: vec!["i-0ae4afa3f007cd3b0-1".to_owned()],
        set_up: true,
        ..refresh::Outcome::default()
    };
    let applied = Applied {
        digest: DIGEST.to_owned(),
        settings: [("idle-time-sec".to_owned(), "900".to_owned())].into(),
        agent: BTreeMap::new(),
        applied_at: "2026-01-31T12:00:00.000Z".to_owned(),
        commit: Some("4f0f3a1c9d1b52f8c8b3a8d1d6c1a0a5a4a7e2b9".to_owned()),
        run: Some("16203894417".to_owned()),
    };
    let stored = serde_json::json!(applied).to_string();
    let stored = [(APPLIED_CONFIG.to_owned(), stored)].into();
    let common = Common::from_inputs(Given::default());
    RefreshReport::new(outcome, Enforcement::of(&common, &stored))
}

const DIGEST: &str = "9b1d3c6c5fdb0d7b9a7fd2bde1be8d5b3dbf0a6f7a4e0b3d1c2f8e9a7b6c5d4e";

fn file_checked() -> CheckReport {
    let pools = vec![PoolDigest { trust: None, settings: 12, digest: DIGEST.to_owned() }];
    CheckReport { path: "ondeck.toml".to_owned(), pools, problems: Vec::new() }
}

fn file_refused() -> CheckReport {
    let problem = FileProblem {
        line: 3,
        column: 1,
        message: "unknown key in [image]: \"amii\"".to_owned(),
        hint: "did you mean ami?".to_owned(),
        excerpt: "3 | amii = \"ami-1\"\n  | ^^^^".to_owned(),
    };
    CheckReport { pools: Vec::new(), problems: vec![problem], ..file_checked() }
}

fn file_shown() -> ShowReport {
    let row = |setting: &str, value: &str, origin| ShowRow {
        setting: setting.to_owned(),
        value: value.to_owned(),
        origin,
        stored: None,
    };
    let in_file = |line: u32| Origin::File(format!("ondeck.toml:{line}"));
    let idle_time = row("idle-time-sec", "900", in_file(7));
    ShowReport {
        path: "ondeck.toml".to_owned(),
        digest: DIGEST.to_owned(),
        process: vec![row("pool", "acme/web", in_file(1))],
        settings: vec![
            ShowRow { stored: Some("300".to_owned()), ..idle_time },
            ShowRow { stored: Some(String::new()), ..row("rescue", "provision", Origin::Default) },
        ],
        stored: Some(StoredConfiguration {
            applied: Some(DIGEST.to_owned()),
            applied_at: Some("2026-01-31T12:00:00.000Z".to_owned()),
            enforced: None,
        }),
    }
}

fn applied() -> ApplyReport {
    let text = |text: &str| Some(text.to_owned());
    let change =
        |setting: &str, before, after| SettingChange { setting: setting.to_owned(), before, after };
    ApplyReport {
        path: text("ondeck.toml"),
        trust: None,
        digest: text(DIGEST),
        settings: 12,
        changes: vec![
            change("idle-time-sec", text("300"), text("900")),
            change("rescue", text("off"), None),
        ],
        result: ApplyResult::Applied,
    }
}

fn status() -> Shown {
    let at = |text: &str| Timestamp::parse(text).unwrap();
    let record = Record {
        requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
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
        departure: ondeck_core::model::departure::Departure::None,
        suffix: None,
        counts: Counts::default(),
    };
    let beat = Heartbeat::new(at("2026-01-31T12:04:58.800Z"), Duration::from_secs(5));
    let status = AgentStatus { heartbeat: Some(beat), ..AgentStatus::default() };
    let hand_over = |transition: &str, minute: u32| EventRow {
        instance: id("i-05d35621a67a63d93"),
        at: at(&format!("2026-01-31T12:{minute:02}:00.000Z")),
        transition: transition.to_owned(),
        from: None,
        to: State::Running,
        run: Some(run()),
        why: String::new(),
    };
    let checked = Some(at("2026-01-31T12:02:00.000Z"));
    let reading = Reading {
        at: at("2026-01-31T12:05:00.000Z"),
        settings: Settings { checked, ..Settings::default() },
        machines: vec![(record, status)],
        tickets: vec![(ResourceClass::new("large").unwrap(), 3)],
        unreadable: Vec::new(),
        count: None,
        hand_overs: Some(vec![hand_over("commit", 4), hand_over("activate", 1)]),
    };
    Shown::on(judge(reading), None)
}
