//! The settings of a launch: where machines are launched, and which types may be chosen.

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::settings::InvalidSetting;

use super::{GENERATIONS, PRICE_PROTECTION, SUBNETS, Settings, given, ids, invalid};
use crate::inputs;

/// What a launch asks EC2 for, beside the requirements of the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaunchOptions {
    /// Not empty: options without a subnet are refused.
    pub(crate) subnets: Vec<String>,
    /// How far the price of an on-demand machine may exceed that of the cheapest type that fits, in
    /// percent.
    pub(crate) price_protection: u32,
    /// Whether types of previous generations may be chosen.
    pub(crate) previous_generations: bool,
}

impl LaunchOptions {
    pub(crate) fn read(settings: &Settings) -> Result<LaunchOptions, InvalidSetting> {
        let subnets = ids(settings, SUBNETS, "subnet-")?;
        if subnets.is_empty() {
            return Err(invalid(SUBNETS, "is not set"));
        }
        let percent = given(settings, PRICE_PROTECTION).unwrap_or(inputs::DEFAULT_PRICE_PROTECTION);
        let price_protection = inputs::percent(percent).map_err(|problem| {
            invalid(PRICE_PROTECTION, format!("{problem}: {}", quoted(percent)))
        })?;
        let previous_generations = match given(settings, GENERATIONS) {
            None | Some(inputs::CURRENT) => false,
            Some(inputs::ANY) => true,
            Some(other) => {
                let (current, any) = (inputs::CURRENT, inputs::ANY);
                let problem = format!("is neither {current} nor {any}: {}", quoted(other));
                return Err(invalid(GENERATIONS, problem));
            }
        };
        Ok(LaunchOptions { subnets, price_protection, previous_generations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: &[(&str, &str)]) -> Result<LaunchOptions, InvalidSetting> {
        let pairs = [(SUBNETS, "subnet-1, subnet-2\nsubnet-1")].iter().chain(more);
        let pairs = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        LaunchOptions::read(&pairs.collect())
    }

    #[test]
    fn defaults_are_wide_in_price_and_narrow_in_age() {
        let options = read(&[]).unwrap();
        assert_eq!(options.subnets, ["subnet-1", "subnet-2"]);
        assert_eq!((options.price_protection, options.previous_generations), (100, false));
        let options = read(&[(PRICE_PROTECTION, "0"), (GENERATIONS, "any")]).unwrap();
        assert_eq!((options.price_protection, options.previous_generations), (0, true));
    }

    #[test]
    fn an_invalid_setting_is_named() {
        for (name, value, expected) in [
            (SUBNETS, "", "subnet-ids is not set"),
            (
                SUBNETS,
                "subnet-1 vpc-2",
                "subnet-ids holds something else than subnet-...: \"vpc-2\"",
            ),
            (
                PRICE_PROTECTION,
                "20%",
                "on-demand-price-protection-percent is not from 0 to 999999: \"20%\"",
            ),
            (GENERATIONS, "old", "instance-generations is neither current nor any: \"old\""),
        ] {
            assert_eq!(read(&[(name, value)]).unwrap_err().to_string(), expected);
        }
        let many: String = (1..=9).map(|n| format!("subnet-{n} ")).collect();
        assert_eq!(read(&[(SUBNETS, &many)]).unwrap().subnets.len(), 9);
    }
}
