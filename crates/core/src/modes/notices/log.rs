//! What operators were told, as it is kept among the settings. Agents may read it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::finding::{Finding, FindingKind, Findings, Notice, NoticeItem};
use crate::model::timestamp::Timestamp;

/// The most findings that are told one by one. The others of a kind are counted in one more, so that
/// the setting stays small: every process of the pool reads it.
const MOST: usize = 30;
/// The subject of the finding that counts the others of its kind.
const OTHERS: &str = "*";

/// What was told. A text that cannot be read is an empty log: what lasts is told again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NoticeLog {
    /// Until when another refresh may be sending.
    #[serde(default, rename = "leasedUntil", skip_serializing_if = "Option::is_none")]
    leased_until: Option<Timestamp>,
    /// By kind and subject.
    told: BTreeMap<String, Told>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    /// When it was found first.
    since: Timestamp,
    /// When it was told last.
    at: Timestamp,
}

impl NoticeLog {
    pub(super) fn read(text: &str) -> NoticeLog {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The text that is stored: empty if nothing was told.
    pub(super) fn text(&self) -> String {
        if *self == NoticeLog::default() {
            return String::new();
        }
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same log, leased until then.
    pub(super) fn leased(&self, until: Option<Timestamp>) -> NoticeLog {
        NoticeLog { leased_until: until, told: self.told.clone() }
    }

    /// Whether another refresh may be sending. A lease that ends later than it can was given by a clock
    /// that was wrong.
    pub(super) fn is_leased(&self, now: Timestamp, longest: Duration) -> bool {
        self.leased_until.is_some_and(|until| now < until && until <= now + longest)
    }

    /// Whether the other log lacks an entry of this one.
    pub(super) fn has_forgotten(&self, other: &NoticeLog) -> bool {
        self.told.keys().any(|key| !other.told.contains_key(key))
    }

    /// What operators are to be told, and the log once they were.
    ///
    /// An entry that was not found again has ended, if refresh knows all findings of its kind. If it does
    /// not, the entry stays until it would be told again, and is forgotten then.
    pub(super) fn news(
        &self,
        findings: &Findings,
        now: Timestamp,
        repeat: Duration,
    ) -> (Notice, NoticeLog) {
        let (mut notice, mut next) = (Notice::default(), NoticeLog::default());
        for finding in self.bounded(findings) {
            let key = key_of(finding.kind, &finding.subject);
            if next.told.contains_key(&key) {
                continue;
            }
            match self.told.get(&key) {
                None => {
                    next.told.insert(key, Told { since: now, at: now });
                    notice.new.push(NoticeItem { finding, since: now });
                }
                Some(Told { since, at }) if is_due(*at, now, repeat) => {
                    next.told.insert(key, Told { since: *since, at: now });
                    notice.lasting.push(NoticeItem { finding, since: *since });
                }
                Some(told) => drop(next.told.insert(key, *told)),
            }
        }
        for (key, told) in &self.told {
            // A kind that this program does not know was told by another version of it.
            let Some((kind, subject)) = kind_and_subject(key) else { continue };
            if next.told.contains_key(key) {
                continue;
            }
            if findings.is_complete(kind) {
                let text = match subject {
                    OTHERS => format!("no further findings: {}", kind.as_str()),
                    subject => kind.ended(subject),
                };
                let finding = Finding { kind, subject: subject.to_owned(), text };
                notice.resolved.push(NoticeItem { finding, since: told.since });
            } else if !is_due(told.at, now, repeat) {
                next.told.insert(key.clone(), *told);
            }
        }
        (notice, next)
    }

    /// The findings to tell one by one, those first that were told before, and one for each kind that
    /// counts the others.
    fn bounded(&self, findings: &Findings) -> Vec<Finding> {
        let is_known = |it: &&Finding| self.told.contains_key(&key_of(it.kind, &it.subject));
        let (known, new): (Vec<&Finding>, Vec<&Finding>) = findings.iter().partition(is_known);
        let all: Vec<&Finding> = known.into_iter().chain(new).collect();
        let (shown, others) = all.split_at(all.len().min(MOST));
        let mut bounded: Vec<Finding> = shown.iter().map(|finding| (*finding).clone()).collect();
        for kind in FindingKind::ALL {
            let count = others.iter().filter(|finding| finding.kind == kind).count();
            if count > 0 {
                let text = format!("further findings: {count} × {}", kind.as_str());
                bounded.push(Finding { kind, subject: OTHERS.to_owned(), text });
            }
        }
        bounded
    }
}

/// Whether what was told at this time is to be told again. A time in the future was given by a clock
/// that was wrong.
fn is_due(told: Timestamp, now: Timestamp, repeat: Duration) -> bool {
    told + repeat <= now || now + repeat < told
}

fn key_of(kind: FindingKind, subject: &str) -> String {
    format!("{} {subject}", kind.as_str())
}

fn kind_and_subject(key: &str) -> Option<(FindingKind, &str)> {
    let (name, subject) = key.split_once(' ')?;
    let kind = FindingKind::ALL.into_iter().find(|kind| kind.as_str() == name)?;
    Some((kind, subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPEAT: Duration = Duration::from_secs(3_600);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000) + Duration::from_secs(seconds)
    }

    fn findings(subjects: &[&str], is_complete: bool) -> Findings {
        let mut findings = Findings::default();
        for subject in subjects {
            findings.add(FindingKind::DeadMachine, subject, &format!("machine {subject} is dead"));
        }
        if is_complete {
            findings.complete(FindingKind::DeadMachine);
        }
        findings
    }

    fn told(items: &[NoticeItem]) -> Vec<&str> {
        items.iter().map(|item| item.finding.text.as_str()).collect()
    }

    #[test]
    fn a_finding_is_told_once_then_again_and_then_that_it_has_ended() {
        let mut log = NoticeLog::default();
        let (none, ended) = (&[][..], "machine i-1 is terminated, or sends heartbeats again");
        for (second, subjects, new, lasting, resolved) in [
            (0, &["i-1"][..], &["machine i-1 is dead"][..], none, none),
            (60, &["i-1"], none, none, none),
            (120, &["i-1", "i-2"], &["machine i-2 is dead"], none, none),
            (3_599, &["i-1", "i-2"], none, none, none),
            (3_600, &["i-1", "i-2"], none, &["machine i-1 is dead"], none),
            (3_660, &["i-2"], none, none, &[ended]),
            (3_700, &["i-2"], none, none, none),
            (3_720, &["i-2"], none, &["machine i-2 is dead"], none),
            (3_800, &["i-1", "i-2"], &["machine i-1 is dead"], none, none),
        ] {
            let (notice, next) = log.news(&findings(subjects, true), at(second), REPEAT);
            let news = (told(&notice.new), told(&notice.lasting), told(&notice.resolved));
            assert_eq!(news, (new.to_vec(), lasting.to_vec(), resolved.to_vec()), "{second} s");
            log = NoticeLog::read(&next.text());
            assert_eq!(log, next, "it is stored as it is");
        }
    }

    #[test]
    fn what_was_not_looked_at_has_not_ended_and_is_forgotten_in_the_end() {
        let (_, log) = NoticeLog::default().news(&findings(&["i-1"], true), at(0), REPEAT);
        let (notice, next) = log.news(&findings(&[], false), at(3_599), REPEAT);
        assert_eq!((notice.is_empty(), &next), (true, &log));
        let (notice, next) = log.news(&findings(&[], false), at(3_600), REPEAT);
        assert_eq!((notice.is_empty(), next.text()), (true, String::new()));
        assert!(log.has_forgotten(&next) && !next.has_forgotten(&log));
    }

    #[test]
    fn the_log_is_bounded_and_the_findings_beyond_it_are_counted() {
        let names: Vec<String> = (0..100).map(|n| format!("i-{n:03}")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let (notice, log) = NoticeLog::default().news(&findings(&all, true), at(0), REPEAT);
        assert_eq!(notice.new.len(), MOST + 1);
        assert_eq!(notice.new[MOST].finding.text, "further findings: 70 × dead-machine");
        assert!(log.text().len() < 4_096, "{}", log.text().len());
        // Another order, and another number: nothing is news.
        let reversed: Vec<&str> = all[..90].iter().rev().copied().collect();
        let (notice, log) = log.news(&findings(&reversed, true), at(60), REPEAT);
        assert!(notice.is_empty(), "{notice:?}");
        let (notice, _) = log.news(&findings(&all[..40], true), at(120), REPEAT);
        assert!(notice.is_empty(), "{notice:?}");
        let (notice, _) = log.news(&findings(&all[10..35], true), at(120), REPEAT);
        assert_eq!((notice.new.len(), notice.resolved.len()), (5, 11), "{notice:?}");
        let last = &notice.resolved.first().unwrap().finding.text;
        assert_eq!(last, "no further findings: dead-machine");
    }

    #[test]
    fn a_log_that_cannot_be_read_and_a_clock_that_was_wrong_make_it_told_again() {
        for text in ["", "null", "{}", "[1]", r#"{"told":{"dead-machine i-1":7}}"#] {
            let (notice, _) = NoticeLog::read(text).news(&findings(&["i-1"], true), at(0), REPEAT);
            assert_eq!(told(&notice.new), ["machine i-1 is dead"], "{text}");
        }
        let (_, log) = NoticeLog::default().news(&findings(&["i-1"], true), at(9_000), REPEAT);
        let (notice, _) = log.news(&findings(&["i-1"], true), at(0), REPEAT);
        assert_eq!(told(&notice.lasting), ["machine i-1 is dead"]);
        let leased = |until| log.leased(Some(until));
        for (until, is_leased) in [(at(0), false), (at(1), true), (at(15), true), (at(16), false)] {
            let is = leased(until).is_leased(at(0), Duration::from_secs(15));
            assert_eq!(is, is_leased, "{until}");
        }
        let other = r#"{"told":{"of-a-later-version x":{"since":"2026-11-18T00:00:00.000Z","at":"2026-11-18T00:00:00.000Z"}}}"#;
        let (notice, next) = NoticeLog::read(other).news(&findings(&[], true), at(0), REPEAT);
        assert_eq!((notice.is_empty(), next.text()), (true, String::new()));
    }
}
