//! Counts of what a provision found in the pool. They explain why it launched a machine although
//! others were idle.

use std::collections::BTreeMap;

use crate::model::requirements::Mismatch;

/// What a provision found in the pool. Each instance counts once, even if its ticket was received
/// several times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSearch {
    /// Whether the pool was searched at all.
    pub asked: bool,
    /// How many tickets were examined.
    pub tickets: usize,
    /// How many machines were claimed and passed their checks.
    pub claimed: usize,
    /// How many tickets were of unsuitable machines, by the first property that did not match.
    pub unsuitable: BTreeMap<Mismatch, usize>,
    /// How many tickets were void: expired, malformed, or of a machine that is gone.
    pub void: usize,
    /// How many claims another run won.
    pub lost: usize,
    /// How many machines were claimed, failed their checks and were terminated.
    pub unhealthy: usize,
    /// How many machines were claimed and went back unused: they were slow to register, or their
    /// agent is of a newer version.
    pub given_back: usize,
    /// How often a second machine was claimed because the first was slow to register.
    pub hedges: usize,
}

impl PoolSearch {
    pub fn unsuitable_count(&self) -> usize {
        self.unsuitable.values().sum()
    }

    pub(super) fn met(&mut self, mismatch: Option<Mismatch>) {
        self.tickets += 1;
        if let Some(mismatch) = mismatch {
            *self.unsuitable.entry(mismatch).or_default() += 1;
        }
    }

    pub(super) fn void_ticket(&mut self) {
        self.tickets += 1;
        self.void += 1;
    }

    /// A short explanation why the pool did not provide all machines.
    pub(super) fn shortage(&self) -> String {
        if !self.asked {
            return "the pool was not asked".to_owned();
        }
        if self.tickets == 0 {
            return "the pool held no ticket".to_owned();
        }
        let mut reasons = Vec::new();
        if self.claimed > 0 {
            reasons.push(format!("the pool had only {}", self.claimed));
        }
        if self.unsuitable_count() > 0 {
            let kinds: Vec<String> = self
                .unsuitable
                .iter()
                .map(|(mismatch, count)| format!("{count} by {}", mismatch.about()))
                .collect();
            let tickets = counted(self.unsuitable_count(), "ticket", "tickets");
            reasons.push(format!("{tickets} did not fit: {}", kinds.join(", ")));
        }
        let others = [
            (self.lost, "race lost", "races lost"),
            (self.unhealthy, "machine unhealthy", "machines unhealthy"),
            (self.given_back, "machine given back", "machines given back"),
            (self.void, "ticket void", "tickets void"),
        ];
        let others = others.into_iter().filter(|(count, ..)| *count > 0);
        reasons.extend(others.map(|(count, one, many)| counted(count, one, many)));
        if reasons.is_empty() {
            return "the pool had no more".to_owned();
        }
        reasons.join("; ")
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortage_says_what_the_search_met() {
        let asked = PoolSearch { asked: true, ..PoolSearch::default() };
        let picky = PoolSearch {
            tickets: 12,
            unsuitable: [(Mismatch::Type, 9), (Mismatch::Usage, 3)].into(),
            ..asked.clone()
        };
        let unlucky = PoolSearch { tickets: 3, lost: 1, unhealthy: 2, void: 1, ..asked.clone() };
        let cases = [
            (PoolSearch::default(), "the pool was not asked"),
            (asked.clone(), "the pool held no ticket"),
            (PoolSearch { tickets: 2, claimed: 2, ..asked }, "the pool had only 2"),
            (picky.clone(), "12 tickets did not fit: 3 by usage class, 9 by type"),
            (
                PoolSearch { claimed: 1, ..picky },
                "the pool had only 1; \
                 12 tickets did not fit: 3 by usage class, 9 by type",
            ),
            (unlucky, "1 race lost; 2 machines unhealthy; 1 ticket void"),
        ];
        for (search, words) in cases {
            assert_eq!(search.shortage(), words);
        }
    }
}
