//! A pool for tests of what people see.

use std::time::Duration;

use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, ResourceClass, RunId};
use ondeck_core::model::record::{Counts, EventRow, MachineSpec, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::{AgentStatus, Report, Signal};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::status::Reading;
use ondeck_core::modes::status::judgement::{Judgement, judge};

pub(crate) fn noon() -> Timestamp {
    Timestamp::parse("2026-05-31T12:00:00Z").unwrap()
}

/// So many machines of all states. Of every 20, one each is silent, overdue, taken away, preserved,
/// and has a failed agent.
pub(crate) fn pool(count: u64) -> Judgement {
    let class = |name: &str| ResourceClass::new(name).unwrap();
    let machines: Vec<_> = (0..count).map(machine).collect();
    let idle = machines.iter().filter(|(record, _)| record.state == State::Idle).count();
    let hand_over = |n: u64| EventRow {
        instance: InstanceId::new("i-1").unwrap(),
        at: noon().before(Duration::from_secs(n * 60)),
        transition: if n.is_multiple_of(4) { "activate" } else { "commit" }.to_owned(),
        from: None,
        to: State::Running,
        run: Some(RunId::new("16203114507").unwrap()),
        why: String::new(),
    };
    let checked = Some(noon().before(Duration::from_secs(200)));
    judge(Reading {
        at: noon(),
        settings: Settings { checked, ..Settings::default() },
        machines,
        unreadable: Vec::new(),
        tickets: vec![(class("large"), idle), (class("xlarge"), 0)],
        count: None,
        hand_overs: Some((1..=count).map(hand_over).collect()),
    })
}

fn machine(n: u64) -> (Record, AgentStatus) {
    let seconds = Duration::from_secs;
    let states = [State::Running, State::Idle, State::Running, State::Created, State::Claimed];
    let state = states[usize::try_from(n % 5).unwrap()];
    let run = state.is_owned().then(|| RunId::new(format!("{}", 16_203_114_507 + n / 3)).unwrap());
    let mut beat = Heartbeat::new(noon().before(seconds(n % 5 + 1)), seconds(5));
    let mut threshold = noon() + seconds(60 + n * 7);
    let mut reuse = Reuse::Always;
    let mut signal = Signal::Registered;
    match n % 20 {
        0 => beat.at = noon().before(seconds(95)),
        1 => threshold = noon().before(seconds(40)),
        2 => beat.interrupted = true,
        5 => reuse = Reuse::Preserved,
        13 => signal = Signal::PrepareFailed,
        _ => {}
    }
    let record = Record {
        requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
        id: InstanceId::new(format!("i-0{:016x}", n * 7_919 + 0x5d35_621a)).unwrap(),
        state,
        run: run.clone(),
        suffix: None,
        threshold: Some(threshold),
        spec: MachineSpec {
            resource_class: ResourceClass::new(if n % 7 == 6 { "xlarge" } else { "large" })
                .unwrap(),
            instance_type: "c6i.large".to_owned(),
            usage_class: if n.is_multiple_of(2) { UsageClass::Spot } else { UsageClass::OnDemand },
            cpu: 2,
            mem: 4_096,
        },
        counts: Counts::default(),
        reuse,
        departure: ondeck_core::model::departure::Departure::None,
        created_at: noon().before(seconds(300 + n)),
        updated_at: noon().before(seconds(100 + n)),
        ticketed_at: None,
        settings_version: None,
    };
    let detail = if signal == Signal::PrepareFailed { "no space left on device" } else { "" };
    let report = Report {
        machine_label: None,
        signal,
        run,
        suffix: None,
        detail: detail.to_owned(),
        at: noon().before(seconds(90)),
        generation: None,
    };
    (record, AgentStatus { readiness: None, heartbeat: Some(beat), report: Some(report) })
}
