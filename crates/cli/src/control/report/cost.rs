//! What `ondeck cost` shows: days as bars, then classes, runs and machines, and what the same runs would
//! have cost otherwise.

mod json;
mod plot;
#[cfg(test)]
mod tests;
mod text;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::prices::Prices;
use ondeck_core::modes::cost::{Account, Cut};
use ondeck_core::modes::refresh::SpendUse;

pub(super) use self::json::CostJson;
#[cfg(any(test, feature = "simulate"))]
pub(super) use self::json::PricesJson;
#[cfg(test)]
pub(super) use self::tests::example;
use super::Report;
use super::wire::to_json;
use crate::inputs::Backend;

/// An account and the prices that it goes by.
#[derive(Debug)]
pub(crate) struct CostReport {
    pub(crate) account: Account,
    pub(crate) prices: Prices,
    /// Why the account begins later than was asked.
    pub(crate) cut: Option<Cut>,
    /// What is spent and reserved today; `None` if it is not known, or without `max-spend-per-day`.
    pub(crate) spend: Option<SpendUse>,
    /// Where the machines are.
    pub(crate) backend: Backend,
}

impl CostReport {
    /// The table that the cap goes by, if there is a cap and the table differs from that of the account.
    fn prices_of_cap(&self) -> Option<Prices> {
        self.spend?;
        let prices = Prices::built_in();
        (!prices.agrees_on_demand(&self.prices)).then_some(prices)
    }

    /// The plot of the days for light and for dark pages, by the names of their files.
    pub(crate) fn plots(&self) -> [(&'static str, String); 2] {
        plot::THEMES
            .map(|(file, theme)| (file, plot::draw(&self.account, self.spend.as_ref(), theme)))
    }
}

impl Report for CostReport {
    fn json(&self) -> String {
        to_json(&CostJson::from(self))
    }

    fn text(&self) -> String {
        text::text(self)
    }

    fn failure(&self) -> Option<Failure> {
        None
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(cut) = self.cut {
            let why = match cut {
                Cut::TooMany => "there are too many events",
                Cut::Deleted => "earlier events are deleted after retention-min",
            };
            warnings.push(format!("{why}; the account begins at {}", self.account.since));
        }
        if let Some(Prices { as_of, region, .. }) = self.prices_of_cap() {
            warnings.push(format!(
                "max-spend-per-day is kept by the program's own prices, not by those of --prices: \
                 {as_of}, {region}"
            ));
        }
        for (instance_type, machines) in &self.account.unpriced {
            warnings.push(match instance_type.as_str() {
                "" => format!("machines not counted, because their type is not known: {machines}"),
                name => format!("machines not counted, because {name} has no price: {machines}"),
            });
        }
        warnings
    }
}

/// The price table of the program.
#[derive(Debug)]
pub(crate) struct PriceTable;

impl Report for PriceTable {
    fn json(&self) -> String {
        self.text()
    }

    fn text(&self) -> String {
        Prices::built_in_text().trim_end().to_owned()
    }

    fn failure(&self) -> Option<Failure> {
        None
    }
}
