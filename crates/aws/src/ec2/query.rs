//! The form in which EC2 takes requests: flat names with dots, lists counted from one.

use std::fmt;
use std::time::Duration;

/// The version of the API that all of this is written for.
pub(crate) const VERSION: &str = "2016-11-15";
/// How long a call may take, its answer included.
const CALL: Duration = Duration::from_secs(8);
/// A fleet is launched before its answer comes.
const LAUNCH: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Query {
    action: &'static str,
    params: Params,
    limit: Duration,
}

/// Some of a request's parameters. They are never shown: there may be user data
/// among them.
#[derive(Clone, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Query {
    pub(crate) fn new(action: &'static str, params: Params) -> Query {
        let limit = if action == "CreateFleet" { LAUNCH } else { CALL };
        Query { action, params, limit }
    }

    pub(crate) fn action(&self) -> &'static str {
        self.action
    }

    /// How long to wait for the answer.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// As it is sent.
    pub(crate) fn body(&self) -> String {
        let head = [("Action", self.action), ("Version", VERSION)];
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(head).extend_pairs(self.params.iter());
        form.finish()
    }

    #[cfg(test)]
    pub(super) fn answered_within(mut self, limit: Duration) -> Query {
        self.limit = limit;
        self
    }
}

impl Params {
    pub(crate) fn new() -> Params {
        Params::default()
    }

    #[must_use]
    pub(crate) fn set(mut self, name: &str, value: impl fmt::Display) -> Params {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds one value, if there is one.
    #[must_use]
    pub(crate) fn maybe(self, name: &str, value: Option<impl fmt::Display>) -> Params {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Adds a list of values.
    #[must_use]
    pub(crate) fn list<T: fmt::Display>(
        self,
        name: &str,
        values: impl IntoIterator<Item = T>,
    ) -> Params {
        (1..).zip(values).fold(self, |params, (n, value)| params.set(&format!("{name}.{n}"), value))
    }

    #[must_use]
    pub(crate) fn within(mut self, name: &str, inner: Params) -> Params {
        self.0.extend(inner.0.into_iter().map(|(field, value)| (format!("{name}.{field}"), value)));
        self
    }

    /// Adds a list of structures.
    #[must_use]
    pub(crate) fn each(self, name: &str, inner: impl IntoIterator<Item = Params>) -> Params {
        (1..)
            .zip(inner)
            .fold(self, |params, (n, inner)| params.within(&format!("{name}.{n}"), inner))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.action, self.params)
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_and_lists_are_flattened_and_escaped() {
        let tag = |key: &str, value: &str| Params::new().set("Key", key).set("Value", value);
        let params = Params::new()
            .set("Type", "instant")
            .maybe("KeyName", None::<&str>)
            .list("InstanceId", ["i-1", "i-2"])
            .within("Options", Params::new().set("Count", 3))
            .each("Tag", [tag("a b", "ü&=+"), tag("c", "")]);
        assert_eq!(
            Query::new("Example", params).body(),
            "Action=Example&Version=2016-11-15&Type=instant&InstanceId.1=i-1&InstanceId.2=i-2\
             &Options.Count=3&Tag.1.Key=a+b&Tag.1.Value=%C3%BC%26%3D%2B&Tag.2.Key=c&Tag.2.Value="
        );
    }

    #[test]
    fn what_a_request_holds_is_not_shown() {
        let query = Query::new("Example", Params::new().set("UserData", "hidden"));
        assert_eq!(format!("{query:?}"), r#"Example ["UserData"]"#);
    }
}
