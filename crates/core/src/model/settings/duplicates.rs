//! Settings that state something twice. Refresh refuses them when they are given. Those that an
//! earlier version stored stay readable: the last class of a name and the largest minimum hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::model::excerpt::quoted;
use crate::model::min_idle::MinIdle;

/// What the first of these settings states twice, with the setting's name. Texts that cannot be
/// parsed are left to their own checks.
pub(crate) fn first(given: &BTreeMap<String, String>) -> Option<String> {
    let classes = "resource-class-config";
    let min_idle = "min-idle";
    let key = given.get(classes).and_then(|text| repeated_key(text));
    let key = key.map(|key| format!("{classes} names a key twice: {}", quoted(&key)));
    key.or_else(|| {
        let minimum = given.get(min_idle)?.parse::<MinIdle>().ok()?.repeated()?;
        Some(format!("{min_idle} gives a second number for the same: {}", quoted(&minimum)))
    })
}

/// The first key that an object of the JSON text has twice, after the keys that lead to it.
fn repeated_key(text: &str) -> Option<String> {
    let mut repeated = None;
    let mut parser = serde_json::Deserializer::from_str(text);
    // The error only ends the parsing.
    drop(Keys { above: "", repeated: &mut repeated }.deserialize(&mut parser));
    repeated
}

/// Reads a JSON value of any form and looks for a key that an object has twice.
struct Keys<'a> {
    above: &'a str,
    repeated: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Keys<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = match self.above {
                "" => key.clone(),
                above => format!("{above}.{key}"),
            };
            if !seen.insert(key) {
                *self.repeated = Some(path);
                return Err(A::Error::custom("a key is repeated"));
            }
            map.next_value_seed(Keys { above: &path, repeated: &mut *self.repeated })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let (above, repeated) = (self.above, self.repeated);
        while list.next_element_seed(Keys { above, repeated: &mut *repeated })?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_twice_at_every_level() {
        for (text, expected) in [
            (r#"{"a":{"cpu":1},"b":{"cpu":1}}"#, None),
            (r#"{"a":1,"b":2,"a":3}"#, Some("a")),
            (r#"{"a":1,"\u0061":3}"#, Some("a")),
            (r#"{"a":{"cpu":1,"x":null,"x":true}}"#, Some("a.x")),
            (r#"{"a":[{"b":-1},{"b":"t","b":1.5}]}"#, Some("a.b")),
            (r#"{"a":1,"a""#, Some("a")),
            ("[", None),
            ("", None),
        ] {
            assert_eq!(repeated_key(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_minimum_is_found_twice_within_one_window_only() {
        for (text, expected) in [
            ("large=1 xlarge=1", None),
            ("large=1; Mon-Fri large=4; Sat large=4", None),
            ("large=1 large/spot=1 large/c*=1", None),
            ("large=1 large=1", Some("large=1")),
            ("large=1 large/on-demand=2", Some("large=2")),
            ("large=1\nlarge=0", Some("large=0")),
            ("large/c*,m*=1 large/m*,c*=2", Some("large/m*,c*=2")),
            ("Mon-Tue 08:00-10:00 large=1; Mon,Tue 08:00-10:00 UTC large=2", Some("large=2")),
            ("Mon large/spot=1; Tue large/spot=1; Mon large/spot=3", Some("large/spot=3")),
        ] {
            let repeated = text.parse::<MinIdle>().unwrap().repeated();
            assert_eq!(repeated.as_deref(), expected, "{text}");
        }
    }
}
