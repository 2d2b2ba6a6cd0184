//! The stored requests of a run, one for each of its labels. Refresh provisions them again when failed
//! jobs are re-run, because GitHub does not re-run the job that called provision.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::inputs::times::{TIMES, TimeOverrides};
use crate::model::excerpt::one_line;
use crate::model::ids::RunId;
use crate::model::label::Label;
use crate::model::machine_label::MachineLabel;
use crate::model::timestamp::Timestamp;
use crate::modes::provision::{Origin, ProvisionOptions, Request};

/// How long a demand is kept. GitHub allows to re-run jobs for 30 days.
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// The request of a run for machines with one label, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Demand {
    pub run: RunId,
    /// The machines that the run asked for.
    #[serde(flatten)]
    pub options: ProvisionOptions,
    /// The times that were given for the call, by input name.
    pub times: BTreeMap<String, String>,
    /// When the call of provision began. It stores the request while it looks for machines.
    pub at: Timestamp,
    /// The rescues that have failed since the last successful one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_rescues: Option<FailedRescues>,
    /// The rescue that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<RescueLease>,
    /// The refresh that re-runs jobs of the run whose machines were taken away, or has done so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<JobsRerun>,
    /// The labels of machines that the run was given, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<MachineLabel>,
}

/// The right of one refresh to re-run jobs of a run, which there is once. Refreshes take it by a
/// conditional write before they ask the forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsRerun {
    /// Tells the writes of different refreshes apart.
    pub by: u64,
    pub at: Timestamp,
}

/// The right of one refresh to rescue a run under one label. Refreshes take it by a conditional
/// write, so that two of them at once rescue the run once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescueLease {
    /// Tells the leases of different refreshes apart.
    pub holder: u64,
    /// When another refresh may take the lease, because this one was killed.
    pub until: Timestamp,
}

/// Consecutive failed rescues of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRescues {
    pub times: u32,
    /// When the last one failed.
    pub at: Timestamp,
}

impl FailedRescues {
    /// The earliest time of the next rescue. The pause doubles with each failure, up to an hour,
    /// because an attempt may launch machines and cost money.
    pub fn not_before(self) -> Timestamp {
        // Refresh is called every five minutes and never on the minute, so the first is a little
        // less than that.
        const FIRST: Duration = Duration::from_secs(4 * 60);
        const LONGEST: Duration = Duration::from_secs(3600);
        let doubled = FIRST.saturating_mul(1 << self.times.saturating_sub(1).min(16));
        self.at + doubled.min(LONGEST)
    }
}

impl Demand {
    /// Parses a stored demand. Logs a malformed one and returns `None`, so that the run is reported
    /// instead of rescued.
    pub fn read(run: &RunId, text: &str) -> Option<Demand> {
        match serde_json::from_str(text) {
            Ok(demand) => Some(demand),
            Err(error) => {
                tracing::warn!(%run, "what the run asked for cannot be read: {}", one_line(&error));
                None
            }
        }
    }

    /// What the machines are labelled with.
    pub fn label(&self) -> Label {
        Label::new(self.run.clone(), self.options.label_suffix.clone())
    }

    /// The demand to store for a request.
    pub fn of(request: &Request, at: Timestamp) -> Demand {
        let text = |(input, span): &(&'static str, Duration)| {
            let row = TIMES.iter().find(|row| row.input == *input)?;
            Some(((*input).to_owned(), row.format(*span)))
        };
        Demand {
            run: request.run.clone(),
            options: request.options.clone(),
            times: request.times.0.iter().filter_map(text).collect(),
            at,
            failed_rescues: None,
            lease: None,
            rerun: None,
            labels: Vec::new(),
        }
    }

    /// Whether a refresh is rescuing the run under this label.
    pub fn is_being_rescued(&self, now: Timestamp) -> bool {
        self.lease.is_some_and(|lease| now < lease.until)
    }

    /// The demand with a lease in place of an earlier one.
    #[must_use]
    pub fn leased(self, holder: u64, until: Timestamp) -> Demand {
        Demand { lease: Some(RescueLease { holder, until }), ..self }
    }

    /// The demand after one more failed rescue.
    #[must_use]
    pub fn failed_again(self, at: Timestamp) -> Demand {
        let times = self.failed_rescues.map_or(0, |earlier| earlier.times).saturating_add(1);
        Demand { failed_rescues: Some(FailedRescues { times, at }), ..self }
    }

    /// The request of a rescue: the same again, for this many machines, but for no more than the run
    /// asked for.
    pub fn again(&self, machines: u32) -> Request {
        // A time that this version does not know or cannot parse has its default.
        let span = |(input, text): (&String, &String)| {
            let row = TIMES.iter().find(|row| row.input == *input)?;
            Some((row.input, row.parse(text).ok()?))
        };
        Request {
            run: self.run.clone(),
            options: ProvisionOptions {
                count: self.options.count.min(machines).max(1),
                ..self.options.clone()
            },
            times: TimeOverrides(self.times.iter().filter_map(span).collect()),
            origin: Origin::Rescue,
            set_up_patience: None,
            leaves_new: false,
            named: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::ResourceClass;
    use crate::model::requirements::UsageClass;

    #[test]
    fn a_request_survives_the_round_trip() {
        let asked = ProvisionOptions {
            class: ResourceClass::new("xlarge").unwrap(),
            usage: UsageClass::Spot,
            types: Some("c7i.* m*".parse().unwrap()),
            capacity_fallback: true,
            ..ProvisionOptions::default()
        };
        let request = Request {
            run: RunId::new("7").unwrap(),
            options: ProvisionOptions { count: 3, ..asked },
            times: TimeOverrides(vec![("max-runtime-min", Duration::from_secs(90 * 60))]),
            origin: Origin::Run,
            set_up_patience: None,
            leaves_new: false,
            named: None,
        };
        let demand = Demand::of(&request, Timestamp::from_millis(5_000));
        let text = serde_json::to_string(&demand).unwrap();
        assert_eq!(serde_json::from_str::<Demand>(&text).unwrap(), demand);
        let again = demand.again(9);
        assert_eq!((&again.options, &again.times), (&request.options, &request.times));
        assert_eq!(again.origin, Origin::Rescue);
        assert_eq!((demand.again(2).options.count, demand.again(0).options.count), (2, 1));
        let failed = demand.failed_again(Timestamp::from_millis(9_000));
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(serde_json::from_str::<Demand>(&text).unwrap(), failed);
    }

    #[test]
    fn the_pause_between_rescues_doubles_up_to_an_hour() {
        let at = Timestamp::from_millis(0);
        for (times, minutes) in [(1, 4), (2, 8), (4, 32), (5, 60), (u32::MAX, 60)] {
            let pause = Duration::from_secs(minutes * 60);
            assert_eq!(FailedRescues { times, at }.not_before(), at + pause, "{times}");
        }
    }
}
