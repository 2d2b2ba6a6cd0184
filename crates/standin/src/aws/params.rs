//! The parameters of the Query protocol, parsed from flattened names into a tree.

use std::collections::BTreeMap;

/// A node of the tree for names like `Filter.1.Value.2=x`. It has a value or members. An invalid
/// request may give it both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Params {
    value: Option<String>,
    members: BTreeMap<String, Params>,
}

impl Params {
    /// Parses a form-encoded body.
    pub(crate) fn parse(body: &[u8]) -> Params {
        let mut root = Params::default();
        for (name, value) in form_urlencoded::parse(body) {
            let mut place = &mut root;
            for step in name.split('.') {
                place = place.members.entry(step.to_owned()).or_default();
            }
            place.value = Some(value.into_owned());
        }
        root
    }

    /// The node at a dotted name.
    pub(crate) fn at(&self, name: &str) -> Option<&Params> {
        name.split('.').try_fold(self, |place, step| place.members.get(step))
    }

    /// The value at a dotted name; `None` if it is empty, as for EC2.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.at(name).and_then(Params::value).filter(|value| !value.is_empty())
    }

    /// The value at a dotted name as a number; `None` if it is not one.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.text(name).and_then(|text| text.parse().ok())
    }

    /// The entries of the list at a dotted name.
    pub(crate) fn list(&self, name: &str) -> Vec<&Params> {
        self.at(name).map(Params::entries).unwrap_or_default()
    }

    /// The entries of this list, in the order of their numbers.
    pub(crate) fn entries(&self) -> Vec<&Params> {
        let mut entries: Vec<(usize, &Params)> = self
            .members
            .iter()
            .filter_map(|(number, entry)| Some((number.parse().ok()?, entry)))
            .collect();
        entries.sort_by_key(|(number, _)| *number);
        entries.into_iter().map(|(_, entry)| entry).collect()
    }

    /// The values of the list at a dotted name.
    pub(crate) fn texts(&self, name: &str) -> Vec<&str> {
        self.list(name).into_iter().filter_map(Params::value).collect()
    }

    pub(crate) fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// The nodes directly below this one, by name.
    pub(crate) fn members(&self) -> &BTreeMap<String, Params> {
        &self.members
    }

    /// A copy of this node without one member.
    pub(crate) fn without(&self, name: &str) -> Params {
        let mut rest = self.clone();
        rest.members.remove(name);
        rest
    }

    /// Whether this node is a list: it has members, and all their names are numbers.
    pub(crate) fn is_list(&self) -> bool {
        !self.members.is_empty()
            && self.members.keys().all(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_a_tree_and_lists_keep_their_order() {
        let params = Params::parse(b"Action=Do&X.10.A=ten&X.2.A=two&X.1.A=a%26b+c&Y=&Z.1=p&Z.2=q");
        let entries: Vec<_> = params.list("X").iter().map(|x| x.text("A").unwrap()).collect();
        assert_eq!(entries, ["a&b c", "two", "ten"]);
        assert_eq!(params.texts("Z"), ["p", "q"]);
        assert_eq!(params.text("Y"), None, "an empty value is none");
        assert_eq!(params.text("X.2.A"), Some("two"));
        assert!(params.at("Z").unwrap().is_list() && !params.at("X.1").unwrap().is_list());
        assert_eq!(params.without("X").at("X"), None);
    }
}
