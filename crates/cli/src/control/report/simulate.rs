//! What `ondeck simulate` shows: each point of the grid, the recommended one, and the lines of
//! `ondeck.toml` for it.

mod json;
mod plot;
#[cfg(test)]
mod tests;
mod text;

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::prices::Prices;
use ondeck_replay::{History, Measured, Model, Point, Recommendation};

#[cfg(test)]
pub(super) use self::json::SimulateJson;
#[cfg(test)]
pub(super) use self::tests::example;
use super::Report;
use super::wire::to_json;

/// A point and what it meant.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) point: Point,
    pub(crate) measured: Measured,
}

/// A grid that was played.
#[derive(Debug)]
pub(crate) struct SimulateReport {
    pub(crate) history: History,
    /// Where the history is from.
    pub(crate) source: String,
    /// What the history does not contain, if that matters.
    pub(crate) warning: Option<String>,
    pub(crate) model: Model,
    pub(crate) prices: Prices,
    /// In the order of the grid, at least one.
    pub(crate) points: Vec<Played>,
    /// Which of them is recommended, and why.
    pub(crate) recommended: Recommendation,
    /// How much of the waiting that the best point spares it had to spare, in percent.
    pub(crate) aim: u32,
    /// The lines of `ondeck.toml` with its settings.
    pub(crate) toml: String,
}

impl SimulateReport {
    /// The plot for light and for dark pages, by the names of their files.
    pub(crate) fn plots(&self) -> [(&'static str, String); 2] {
        plot::THEMES.map(|(file, theme)| (file, plot::draw(self, theme)))
    }

    fn chosen(&self) -> &Played {
        &self.points[self.recommended.index]
    }

    /// How many machines the runs ask for together.
    fn machines(&self) -> usize {
        self.history.runs().iter().map(|run| run.machines as usize).sum()
    }
}

impl Report for SimulateReport {
    fn json(&self) -> String {
        to_json(&json::SimulateJson::from(self))
    }

    fn text(&self) -> String {
        text::text(self)
    }

    fn failure(&self) -> Option<Failure> {
        None
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.warning.iter().cloned().collect();
        let failed: usize = self.points.iter().map(|it| it.measured.failed).sum();
        if let Some(first) = self.points.iter().find_map(|it| it.measured.failure.as_ref()) {
            warnings.push(format!(
                "runs or refreshes that failed at all points: {failed}; the first: {first}"
            ));
        }
        let unpriced: Duration = self.points.iter().map(|it| it.measured.unpriced).sum();
        if unpriced > Duration::ZERO {
            warnings.push("machines without a price are not counted: give --prices".to_owned());
        }
        warnings
    }
}

/// A history as CSV.
#[derive(Debug)]
pub(crate) struct HistoryText {
    csv: String,
    warning: Option<String>,
}

impl HistoryText {
    pub(crate) fn new(history: &History, warning: Option<String>) -> HistoryText {
        HistoryText { csv: history.to_csv(), warning }
    }
}

impl Report for HistoryText {
    fn json(&self) -> String {
        self.text()
    }

    fn text(&self) -> String {
        self.csv.trim_end().to_owned()
    }

    fn failure(&self) -> Option<Failure> {
        None
    }

    fn warnings(&self) -> Vec<String> {
        self.warning.iter().cloned().collect()
    }
}
