//! What provision is asked for.

use std::time::Duration;

use crate::model::failure::Failure;
use crate::model::ids::{ResourceClass, RunId};
use crate::model::requirements::{Requirements, TypePatterns, UsageClass};
use crate::model::settings::Settings;
use crate::model::times::Times;

/// The most machines that one call may ask for.
pub const MAX_COUNT: u32 = 1000;

/// The instance types of a run that does not say.
pub const DEFAULT_TYPES: &str = "c* m* r*";

/// What provision is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The run, which becomes the label.
    pub run: RunId,
    /// How many machines, from 1 to [`MAX_COUNT`].
    pub count: u32,
    /// Of which size.
    pub class: ResourceClass,
    /// Paid for how.
    pub usage: UsageClass,
    /// Of which types.
    pub types: TypePatterns,
    /// Times that hold for this call only.
    pub times: TimeOverrides,
    /// Whether only new machines will do, and idle ones are left where they are.
    pub fresh_only: bool,
    /// Whether the run is only given again what it has asked for before, which is on record.
    pub again: bool,
    /// Whether to try again for what is missing, and then on demand instead of spot.
    pub capacity_fallback: bool,
}

/// Times that hold for one call, by input name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeOverrides(pub Vec<(&'static str, Duration)>);

impl TimeOverrides {
    /// The times in force for the call.
    pub fn over(&self, mut times: Times) -> Times {
        for (input, span) in &self.0 {
            times.set(input, *span);
        }
        times
    }
}

impl Request {
    /// Whether refresh asks, to keep machines warm or to rescue a run, and not the run itself.
    pub(super) fn is_of_refresh(&self) -> bool {
        self.fresh_only || self.again
    }

    /// What every machine must be, by the settings in force.
    pub fn requirements(&self, settings: &Settings) -> Result<Requirements, Failure> {
        if self.count == 0 || self.count > MAX_COUNT {
            let message = format!("instance count is not from 1 to {MAX_COUNT}: {}", self.count);
            return Err(Failure::invalid(message)
                .hint("ask for as many machines as the run has jobs at the same time"));
        }
        let size = settings.classes.get(&self.class).ok_or_else(|| {
            Failure::invalid(format!("resource class not configured: {}", self.class))
                .hint(format!("configured classes are {}", settings.classes.listing()))
        })?;
        Ok(Requirements {
            class: self.class.clone(),
            size,
            usage: self.usage,
            types: self.types.clone(),
        })
    }
}
