//! Conditions of a statement.
//!
//! Documented in the IAM User Guide: "IAM JSON policy elements: Condition operators", "Single-valued
//! vs. multivalued context keys" and "Conditions with multiple context keys or values".

use std::cmp::Ordering;

use super::Context;
use super::context::is_multivalued;
use super::pattern::{Glob, Reach, Template, literal, matches, matches_arn};

/// One operator with one key and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    operator: Operator,
    key: String,
    values: Vec<Template>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Operator {
    quantifier: Quantifier,
    comparison: Comparison,
    negated: bool,
    if_exists: bool,
}

/// How many values of the request have to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantifier {
    Single,
    /// `ForAllValues:`
    All,
    /// `ForAnyValue:`
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equals,
    EqualsIgnoreCase,
    Like,
    Arn,
    Numeric(&'static [Ordering]),
    Bool,
    Null,
}

/// The operators that this evaluator knows: name, comparison, and whether it is negated. There is
/// none for dates, addresses and binary values, which the policies do not use.
const OPERATORS: [(&str, Comparison, bool); 18] = {
    use Comparison::{Arn, Bool, Equals, EqualsIgnoreCase, Like, Null, Numeric};
    use Ordering::{Equal, Greater, Less};
    [
        ("StringEquals", Equals, false),
        ("StringNotEquals", Equals, true),
        ("StringEqualsIgnoreCase", EqualsIgnoreCase, false),
        ("StringNotEqualsIgnoreCase", EqualsIgnoreCase, true),
        ("StringLike", Like, false),
        ("StringNotLike", Like, true),
        // AWS documents that ArnEquals and ArnLike behave alike.
        ("ArnEquals", Arn, false),
        ("ArnLike", Arn, false),
        ("ArnNotEquals", Arn, true),
        ("ArnNotLike", Arn, true),
        ("NumericEquals", Numeric(&[Equal]), false),
        ("NumericNotEquals", Numeric(&[Equal]), true),
        ("NumericLessThan", Numeric(&[Less]), false),
        ("NumericLessThanEquals", Numeric(&[Less, Equal]), false),
        ("NumericGreaterThan", Numeric(&[Greater]), false),
        ("NumericGreaterThanEquals", Numeric(&[Greater, Equal]), false),
        ("Bool", Bool, false),
        ("Null", Null, false),
    ]
};

impl Operator {
    fn parse(name: &str) -> Result<Operator, String> {
        let unknown = || format!("unknown operator: {name}");
        let (quantifier, rest) = match name.split_once(':') {
            None => (Quantifier::Single, name),
            Some(("ForAllValues", rest)) => (Quantifier::All, rest),
            Some(("ForAnyValue", rest)) => (Quantifier::Any, rest),
            Some(_) => return Err(unknown()),
        };
        let (plain, if_exists) = match rest.strip_suffix("IfExists") {
            Some(plain) => (plain, true),
            None => (rest, false),
        };
        let found = OPERATORS.iter().find(|(operator, ..)| *operator == plain);
        let (_, comparison, negated) = *found.ok_or_else(unknown)?;
        if comparison == Comparison::Null && (if_exists || quantifier != Quantifier::Single) {
            return Err(unknown());
        }
        Ok(Operator { quantifier, comparison, negated, if_exists })
    }
}

impl Condition {
    /// Reads an operator, a key and its values.
    ///
    /// Fails for an unknown operator and for values that cannot be compared so. Also fails where
    /// AWS leaves the meaning open: a plain operator on a key with several values, a set operator
    /// on a key with one, and a negated operator with a variable that may have no value.
    pub(super) fn parse(operator: &str, key: &str, values: &[String]) -> Result<Condition, String> {
        let name = operator;
        let operator = Operator::parse(name)?;
        let many = is_multivalued(key);
        let set = operator.quantifier != Quantifier::Single;
        if operator.comparison != Comparison::Null && many != set {
            let wants = if many { "needs" } else { "cannot have" };
            return Err(format!("{key} {wants} a set operator: {name}"));
        }
        if values.is_empty() {
            return Err(format!("condition without a value: {key}"));
        }
        let is_bool = |text: &String| matches!(text.as_str(), "true" | "false");
        let fits = match operator.comparison {
            Comparison::Numeric(_) => values.iter().all(|text| text.parse::<f64>().is_ok()),
            Comparison::Bool => values.iter().all(is_bool),
            Comparison::Null => values.len() == 1 && values.iter().all(is_bool),
            _ => true,
        };
        if !fits {
            return Err(format!("not a value for {name}: {values:?}"));
        }
        let values: Vec<Template> =
            values.iter().map(|text| Template::parse(text)).collect::<Result<_, _>>()?;
        if operator.negated && values.iter().any(Template::has_variable) {
            return Err(format!("{name} with a variable is not supported: {key}"));
        }
        Ok(Condition { operator, key: key.to_owned(), values })
    }

    pub(super) fn has_variable(&self) -> bool {
        self.values.iter().any(Template::has_variable)
    }

    /// Whether the request satisfies the condition.
    pub(super) fn holds(&self, context: &Context) -> bool {
        let Operator { quantifier, comparison, negated, if_exists } = self.operator;
        let found = context.values(&self.key);
        if comparison == Comparison::Null {
            let wanted = self.values[0].glob(context).unwrap_or_default();
            return found.is_none() == literal(&wanted).eq("true".chars());
        }
        let Some(found) = found else {
            return if_exists
                || match quantifier {
                    // The value of an absent key is not equal to any.
                    Quantifier::Single => negated,
                    Quantifier::All => true,
                    Quantifier::Any => false,
                };
        };
        // A value whose variable has no value matches nothing.
        let wanted: Vec<Vec<Glob>> =
            self.values.iter().filter_map(|value| value.glob(context)).collect();
        let satisfies = |value: &String| comparison.matches_one(&wanted, value) != negated;
        match quantifier {
            Quantifier::Any => found.iter().any(satisfies),
            Quantifier::All | Quantifier::Single => found.iter().all(satisfies),
        }
    }
}

impl Comparison {
    /// Whether a value of the request matches one of the policy's values.
    fn matches_one(self, wanted: &[Vec<Glob>], value: &str) -> bool {
        wanted.iter().any(|wanted| match self {
            Comparison::Equals => literal(wanted).eq(value.chars()),
            Comparison::EqualsIgnoreCase => {
                let wanted: String = literal(wanted).collect();
                wanted.to_lowercase() == value.to_lowercase()
            }
            Comparison::Like => matches(wanted, value, Reach::Anything),
            Comparison::Arn => matches_arn(wanted, value),
            Comparison::Numeric(orders) => {
                let wanted = literal(wanted).collect::<String>().parse::<f64>();
                let order = match (value.parse::<f64>(), wanted) {
                    (Ok(value), Ok(wanted)) => value.partial_cmp(&wanted),
                    _ => None,
                };
                order.is_some_and(|order| orders.contains(&order))
            }
            Comparison::Bool => literal(wanted).collect::<String>().eq_ignore_ascii_case(value),
            Comparison::Null => false,
        })
    }
}
