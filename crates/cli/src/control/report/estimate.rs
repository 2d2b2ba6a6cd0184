//! A rough estimate of what machines cost, to tell a cent from a dollar and to compare.

use std::sync::LazyLock;
use std::time::Duration;

use ondeck_core::model::money::Money;
use ondeck_core::model::prices::Prices;
use ondeck_core::model::record::MachineSpec;

use crate::inputs::Backend;

static PRICES: LazyLock<Prices> = LazyLock::new(Prices::built_in);

/// The small print below every estimate.
pub(super) fn assumption(backend: Backend) -> String {
    let local = match backend {
        Backend::Local => {
            "Local machines are processes and cost nothing; the figures are for the EC2 types that \
             they are named after. "
        }
        Backend::Aws => "",
    };
    let Prices { as_of, region, spot_share, .. } = &*PRICES;
    format!(
        "<sub>{local}Estimated from list prices of {as_of}: EC2 Linux on-demand in {region}, spot at \
         {:.0} % of that, GitHub-hosted Linux runners. Disks, traffic and idle time in the pool are not \
         included.</sub>\n",
        100.0 * spot_share,
    )
}

/// An amount in US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub(super) struct Dollars(f64);

impl std::ops::Add for Dollars {
    type Output = Dollars;
    fn add(self, other: Dollars) -> Dollars {
        Dollars(self.0 + other.0)
    }
}

impl std::iter::Sum for Dollars {
    fn sum<I: Iterator<Item = Dollars>>(amounts: I) -> Dollars {
        amounts.fold(Dollars::default(), std::ops::Add::add)
    }
}

impl std::fmt::Display for Dollars {
    /// Two significant digits, because the estimate is no better. No dollar sign, because GitHub
    /// may read it as mathematics.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            none if none <= 0.0 => f.write_str("nothing"),
            little if little < 0.0095 => f.write_str("less than a cent"),
            some if some < 9.95 => write!(f, "about USD {some:.2}"),
            much => write!(f, "about USD {much:.0}"),
        }
    }
}

/// What a machine costs on EC2 if it runs for this long. `None` if its price is not known.
pub(super) fn on_ec2(spec: &MachineSpec, span: Duration) -> Option<Dollars> {
    PRICES.per_hour(spec).map(|hour| Dollars(hour.for_span(span).dollars()))
}

/// What a GitHub-hosted runner of at least this size costs for one job of this length, which
/// GitHub rounds up to minutes. `None` if GitHub has no runner of that size.
pub(super) fn on_github(spec: &MachineSpec, span: Duration) -> Option<Dollars> {
    PRICES.hosted_job(spec, span).map(|(_, cost)| Dollars(Money::dollars(cost)))
}

/// What machines cost on EC2 in an hour.
#[cfg(feature = "dashboard")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CostOfAnHour {
    /// An estimate in words.
    pub(crate) amount: String,
    /// How many machines it does not contain, because there is no price for them.
    pub(crate) unpriced: usize,
}

#[cfg(feature = "dashboard")]
impl CostOfAnHour {
    pub(crate) fn of<'a>(specs: impl Iterator<Item = &'a MachineSpec>) -> CostOfAnHour {
        let (mut total, mut unpriced) = (Dollars::default(), 0);
        for spec in specs {
            match on_ec2(spec, Duration::from_secs(3600)) {
                Some(amount) => total = total + amount,
                None => unpriced += 1,
            }
        }
        CostOfAnHour { amount: total.to_string(), unpriced }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_do_not_pretend() {
        let cases = [
            (0.0, "nothing"),
            (0.0004, "less than a cent"),
            (0.0098, "about USD 0.01"),
            (0.4351, "about USD 0.44"),
            (12.34, "about USD 12"),
        ];
        for (amount, words) in cases {
            assert_eq!(Dollars(amount).to_string(), words);
        }
    }
}
