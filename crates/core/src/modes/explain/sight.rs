//! When an agent saw that a run had claimed its machine. It looks at its record when it is woken, and
//! late if it is not: that is a part of the waiting time that no other number shows.

use std::time::Duration;

use super::Step;
use crate::model::ids::RunId;
use crate::model::record::EventRow;
use crate::model::signal::{AgentStatus, HELD, Signal};
use crate::model::timestamp::Timestamp;

/// How much later than the hand-over a signal may be dated that preceded it. Clocks differ, and a
/// later one is of a runner that was started again.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);

/// The moment at which an agent saw a claim, by the agent's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    pub run: RunId,
    /// When it saw it.
    pub at: Timestamp,
    /// How long after the claim that was. Zero if the agent's clock is behind.
    pub after: Duration,
}

/// When the agent saw the latest claim. `None` if the records do not tell: the signal or the heartbeat
/// is of another time, the runner was registered again since, or it has a label of the machine: it may have
/// been registered before the claim.
pub(super) fn of_claim(status: &AgentStatus, steps: &[Step]) -> Option<Sight> {
    let (report, heartbeat) = (status.report.as_ref()?, status.heartbeat?);
    let is_first = report.signal == Signal::Registered
        && report.detail != HELD
        && report.machine_label.is_none();
    // The heartbeat that precedes the signal tells how long an earlier registration took.
    let took = heartbeat.registration.filter(|_| is_first && heartbeat.at >= report.at)?;
    let of_run = |event: &&EventRow| event.run.is_some() && event.run == report.run;
    let latest = |transition: &str| {
        let mut events = steps.iter().rev().filter_map(Step::event).map(|(event, _)| event);
        events.find(|event| event.transition == transition).filter(of_run)
    };
    let claim = latest("claim")?;
    let handed_over = latest("commit").filter(|event| event.at >= claim.at);
    let is_of_claim = handed_over.is_none_or(|event| report.at <= event.at + CLOCKS_DIFFER);
    let (run, at) = (claim.run.clone()?, report.at.before(took));
    is_of_claim.then(|| Sight { run, at, after: at.since(claim.at) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::heartbeat::Heartbeat;
    use crate::model::ids::InstanceId;
    use crate::model::machine_label::MachineLabel;
    use crate::model::record::State;
    use crate::model::signal::Report;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000 * seconds)
    }

    fn step(seconds: u64, transition: &str, run: &str) -> Step {
        let event = EventRow {
            instance: InstanceId::new("i-1").unwrap(),
            at: at(seconds),
            transition: transition.to_owned(),
            from: None,
            to: State::Running,
            run: (!run.is_empty()).then(|| RunId::new(run).unwrap()),
            why: String::new(),
        };
        Step::Event { event, before: None }
    }

    /// An agent that registered its runner for run 2 at 112, which took it two seconds.
    fn status() -> AgentStatus {
        let report = Report {
            machine_label: None,
            signal: Signal::Registered,
            run: Some(RunId::new("2").unwrap()),
            suffix: None,
            detail: String::new(),
            at: at(112),
            generation: None,
        };
        let registration = Some(Duration::from_secs(2));
        let heartbeat =
            Heartbeat { registration, ..Heartbeat::new(at(113), Duration::from_secs(5)) };
        AgentStatus { readiness: None, heartbeat: Some(heartbeat), report: Some(report) }
    }

    #[test]
    fn it_is_the_registration_without_its_length() {
        let steps = [step(50, "claim", "1"), step(60, "release", ""), step(100, "claim", "2")];
        let sight = of_claim(&status(), &steps).unwrap();
        assert_eq!((sight.run.as_str(), sight.at), ("2", at(110)));
        assert_eq!(sight.after, Duration::from_secs(10));
        let handed = [&steps[..], &[step(113, "commit", "2")]].concat();
        assert_eq!(of_claim(&status(), &handed), Some(sight));
        let ahead = [step(111, "claim", "2")];
        assert_eq!(of_claim(&status(), &ahead).unwrap().after, Duration::ZERO);
    }

    #[test]
    fn it_is_unknown_where_the_records_do_not_tell() {
        let steps = [step(100, "claim", "2")];
        let known = |change: &dyn Fn(&mut AgentStatus), steps: &[Step]| {
            let mut status = status();
            change(&mut status);
            of_claim(&status, steps).is_some()
        };
        assert!(known(&|_| {}, &steps));
        let beat = |status: &mut AgentStatus| status.heartbeat.unwrap();
        let of_earlier = |status: &mut AgentStatus| {
            status.heartbeat = Some(Heartbeat { at: at(111), ..beat(status) });
        };
        assert!(!known(&of_earlier, &steps), "the heartbeat is of an earlier registration");
        let unmeasured = |status: &mut AgentStatus| {
            status.heartbeat = Some(Heartbeat { registration: None, ..beat(status) });
        };
        assert!(!known(&unmeasured, &steps), "the agent has not said how long it took");
        let left = |status: &mut AgentStatus| {
            status.report.as_mut().unwrap().signal = Signal::Deregistered;
        };
        assert!(!known(&left, &steps), "the signal is another one");
        let held =
            |status: &mut AgentStatus| status.report.as_mut().unwrap().detail = HELD.to_owned();
        assert!(!known(&held, &steps), "it tells of a job");
        let label = MachineLabel::new(format!("m{}", "7".repeat(32))).unwrap();
        let online = |status: &mut AgentStatus| {
            status.report.as_mut().unwrap().machine_label = Some(label.clone());
        };
        assert!(!known(&online, &steps), "it may have been registered before");
        assert!(!known(&|_| {}, &[]), "the claim is lost");
        assert!(!known(&|_| {}, &[step(100, "claim", "3")]), "it is of another run");
        let again = [step(100, "claim", "2"), step(104, "commit", "2")];
        assert!(!known(&|_| {}, &again), "the runner was started again after the hand-over");
    }
}
