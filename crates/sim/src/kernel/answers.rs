//! What processes have been answered, by which the exhaustive search tells their states apart.

use std::collections::BTreeMap;
use std::fmt::Debug;

use super::{Pid, digest};

/// The lists that a refresh asks for together, and beside the reap. It keeps each answer, and uses none
/// before it has all of them and the reap has ended.
const LISTS: [&str; 3] = ["machines", "open intents", "runners"];

/// Whether this call asks for a list of a refresh whose answer may come before or after those to the
/// calls that it makes at the same time: the refresh is in the same state then.
pub(super) fn is_list(process: &str, what: &str) -> bool {
    process.starts_with("refresh") && LISTS.contains(&what)
}

/// A digest of the answers that each process has received, in their order. Each list of a refresh has a
/// digest of its own, so the order in which a list and another answer arrive does not count.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerDigests(BTreeMap<(Pid, Option<&'static str>), u64>);

impl AnswerDigests {
    /// Adds what a process has received: the answer to a call for this list, any other answer, or the
    /// end of a sleep.
    pub(super) fn add(&mut self, pid: Pid, list: Option<&'static str>, received: &[&dyn Debug]) {
        let so_far = self.0.entry((pid, list)).or_default();
        *so_far = digest(&[so_far, &received]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of a process that has received these answers.
    fn after(process: &str, answers: [(&'static str, &str); 2]) -> u64 {
        let mut digests = AnswerDigests::default();
        for (what, answer) in answers {
            digests.add(Pid(1), is_list(process, what).then_some(what), &[&what, &answer]);
        }
        digest(&[&digests])
    }

    #[test]
    fn only_the_order_of_a_list_of_refresh_and_another_answer_does_not_count() {
        let (machines, runners) = (("machines", "i-1"), ("runners", "i-1"));
        let (record, status) = (("record", "i-1"), ("agent status", "i-1"));
        for (process, one, other, counts) in [
            ("refresh#1", machines, runners, false),
            ("refresh#1", machines, status, false),
            ("refresh#1", record, status, true),
            ("refresh#1", machines, ("machines", "i-2"), true),
            ("provision 1#1", machines, runners, true),
        ] {
            let differs = after(process, [one, other]) != after(process, [other, one]);
            assert_eq!(differs, counts, "{process}: {one:?} {other:?}");
        }
        let [one, other] = [machines, runners].map(|it| after("refresh#1", [it, status]));
        assert_ne!(one, other, "which list was answered counts");
    }
}
