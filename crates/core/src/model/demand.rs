//! What a run has asked for, kept so that it can be given the same again: when its failed jobs
//! are run again, nobody calls provision for them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::inputs::times::{TIMES, TimeOverrides};
use crate::model::excerpt::one_line;
use crate::model::ids::RunId;
use crate::model::timestamp::Timestamp;
use crate::modes::provision::{Origin, ProvisionOptions, Request};

/// For how long it is kept: that is how long GitHub lets jobs be run again.
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// The request of a run, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Demand {
    /// Whose.
    pub run: RunId,
    /// The machines that it asked for.
    #[serde(flatten)]
    pub options: ProvisionOptions,
    /// Times that were given for the call, by input.
    pub times: BTreeMap<String, String>,
    /// When it was asked for.
    pub at: Timestamp,
    /// What became of giving it again, as long as that has always failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_rescues: Option<FailedRescues>,
}

/// Attempts to rescue a run, all of which have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRescues {
    /// How many.
    pub times: u32,
    /// When the last one had.
    pub at: Timestamp,
}

impl FailedRescues {
    /// When to try again. Each attempt may launch machines and end them, which is paid for; what
    /// has failed often will fail again, until a person has done something.
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
    /// Reads what was written down. What cannot be read is as good as none: it is named in the
    /// log, and the run is reported instead of rescued.
    pub fn read(run: &RunId, text: &str) -> Option<Demand> {
        match serde_json::from_str(text) {
            Ok(demand) => Some(demand),
            Err(error) => {
                tracing::warn!(%run, "what the run asked for cannot be read: {}", one_line(&error));
                None
            }
        }
    }

    /// What is to be remembered of a request.
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
        }
    }

    /// After one more attempt that has failed.
    #[must_use]
    pub fn failed_again(self, at: Timestamp) -> Demand {
        let times = self.failed_rescues.map_or(0, |earlier| earlier.times).saturating_add(1);
        Demand { failed_rescues: Some(FailedRescues { times, at }), ..self }
    }

    /// The same request again, for no more machines than there are jobs.
    pub fn again(&self, jobs: u32) -> Request {
        // A time that this version does not know or cannot read has its default.
        let span = |(input, text): (&String, &String)| {
            let row = TIMES.iter().find(|row| row.input == *input)?;
            Some((row.input, row.parse(text).ok()?))
        };
        Request {
            run: self.run.clone(),
            options: ProvisionOptions {
                count: self.options.count.min(jobs).max(1),
                ..self.options.clone()
            },
            times: TimeOverrides(self.times.iter().filter_map(span).collect()),
            origin: Origin::Rescue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::ResourceClass;
    use crate::model::requirements::UsageClass;

    #[test]
    fn a_request_survives_being_written_down() {
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
    fn what_fails_is_tried_less_and_less_often() {
        let at = Timestamp::from_millis(0);
        for (times, minutes) in [(1, 4), (2, 8), (4, 32), (5, 60), (u32::MAX, 60)] {
            let pause = Duration::from_secs(minutes * 60);
            assert_eq!(FailedRescues { times, at }.not_before(), at + pause, "{times}");
        }
    }
}
