//! What a run has asked for, kept so that it can be given the same again: when its failed jobs
//! are run again, nobody calls provision for them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ResourceClass, RunId};
use crate::provision::{Request, TimeOverrides};
use crate::requirements::{TypePatterns, UsageClass};
use crate::time::Timestamp;
use crate::times::TIMES;

/// For how long it is kept: that is how long GitHub lets jobs be run again.
pub const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The request of a run, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Demand {
    /// Whose.
    pub run: RunId,
    /// How many machines.
    pub count: u32,
    /// Of which size.
    pub class: ResourceClass,
    /// Paid for how.
    pub usage: UsageClass,
    /// Of which types.
    pub types: TypePatterns,
    /// Times that were given for the call, by input.
    pub times: BTreeMap<String, String>,
    /// Whether to try again, and then on demand instead of spot.
    pub capacity_fallback: bool,
    /// When it was asked for.
    pub at: Timestamp,
}

impl Demand {
    /// Reads what was written down. What cannot be read is as good as none: it is named in the
    /// log, and the run is reported instead of rescued.
    pub fn read(run: &RunId, text: &str) -> Option<Demand> {
        match serde_json::from_str(text) {
            Ok(demand) => Some(demand),
            Err(error) => {
                tracing::warn!(%run, "what the run asked for cannot be read: {error}");
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
            count: request.count,
            class: request.class.clone(),
            usage: request.usage,
            types: request.types.clone(),
            times: request.times.0.iter().filter_map(text).collect(),
            capacity_fallback: request.capacity_fallback,
            at,
        }
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
            count: self.count.min(jobs).max(1),
            class: self.class.clone(),
            usage: self.usage,
            types: self.types.clone(),
            times: TimeOverrides(self.times.iter().filter_map(span).collect()),
            fresh_only: false,
            capacity_fallback: self.capacity_fallback,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_being_written_down() {
        let request = Request {
            run: RunId::new("7").unwrap(),
            count: 3,
            class: ResourceClass::new("xlarge").unwrap(),
            usage: UsageClass::Spot,
            types: "c7i.* m*".parse().unwrap(),
            times: TimeOverrides(vec![("max-runtime-min", Duration::from_secs(90 * 60))]),
            fresh_only: false,
            capacity_fallback: true,
        };
        let demand = Demand::of(&request, Timestamp::from_millis(5_000));
        let text = serde_json::to_string(&demand).unwrap();
        assert_eq!(serde_json::from_str::<Demand>(&text).unwrap(), demand);
        let again = demand.again(9);
        assert_eq!((again.count, again.times.clone()), (3, request.times));
        assert_eq!((again.class, again.usage), (request.class, request.usage));
        assert_eq!(again.types.to_string(), "c7i.* m*");
        assert!(again.capacity_fallback && !again.fresh_only);
        assert_eq!((demand.again(2).count, demand.again(0).count), (2, 1));
    }
}
