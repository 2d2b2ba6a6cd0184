//! What is assumed about machines, and a point of the grid.

use std::time::Duration;

use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::requirements::UsageClass;

/// How long things take that ondeck does not decide. Each takes the same time always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// From the launch of a machine until its runner is registered.
    pub boot: Duration,
    /// How long an idle machine takes to register its runner for a run that has claimed it.
    pub registration: Duration,
    /// How long a machine takes to leave a run that has released it.
    pub leaving: Duration,
    /// The time between two refreshes.
    pub refresh_every: Duration,
    /// How many spot machines are interrupted in a thousand hours of one. None if it is 0.
    pub interruptions: u32,
    /// Decides when spot machines are interrupted.
    pub seed: u64,
}

impl Default for Model {
    fn default() -> Model {
        let seconds = Duration::from_secs;
        Model {
            boot: seconds(45),
            registration: seconds(5),
            leaving: seconds(2),
            refresh_every: seconds(300),
            interruptions: 0,
            seed: 1,
        }
    }
}

/// One choice of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// `idle-time-sec`.
    pub idle_time: Duration,
    /// How many idle machines of each class of the history `min-idle` asks for.
    pub min_idle: u32,
    /// When the minimum holds, as `min-idle` has it (`Mon-Fri 08:00-18:00`); always if it is empty.
    pub window: String,
    /// What runs ask for, and of what the minimum is.
    pub usage: UsageClass,
}

impl Point {
    /// The text of the setting `min-idle` for these classes; empty if there is no minimum.
    pub fn min_idle_setting(&self, classes: &[ResourceClass]) -> String {
        if self.min_idle == 0 {
            return String::new();
        }
        let usage = match self.usage {
            UsageClass::OnDemand => String::new(),
            UsageClass::Spot => format!("/{}", self.usage),
        };
        let minimums: Vec<String> =
            classes.iter().map(|class| format!("{class}{usage}={}", self.min_idle)).collect();
        format!("{} {}", self.window, minimums.join(" ")).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::settings::MinIdle;

    use super::*;

    #[test]
    fn a_minimum_is_one_of_each_class_and_is_read_as_the_setting() {
        let classes = ["large", "xlarge"].map(|name| name.parse().unwrap());
        let point = |min_idle, window: &str, usage| Point {
            idle_time: Duration::from_secs(300),
            min_idle,
            window: window.to_owned(),
            usage,
        };
        for (of, expected) in [
            (point(0, "Mon-Fri 08:00-18:00", UsageClass::Spot), ""),
            (point(2, "", UsageClass::OnDemand), "large=2 xlarge=2"),
            (
                point(1, "Mon-Fri 08:00-18:00 Europe/Berlin", UsageClass::Spot),
                "Mon-Fri 08:00-18:00 Europe/Berlin large/spot=1 xlarge/spot=1",
            ),
        ] {
            let text = of.min_idle_setting(&classes);
            assert_eq!(text, expected);
            let read: MinIdle = text.parse().unwrap();
            assert_eq!(read.to_string(), expected);
        }
    }
}
