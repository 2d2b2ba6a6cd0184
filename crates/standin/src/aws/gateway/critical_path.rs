//! The round trips that follow each other in a log of requests.

use super::LogEntry;

/// The longest chain of requests in which each begins after the one before it has ended: how many
/// round trips a caller has waited for one after the other. Requests that were under way at the same
/// time are counted once. A request may follow another by chance and not need its answer, so this is
/// an upper bound of what depends on each other.
pub fn critical_path(log: &[LogEntry]) -> Vec<&LogEntry> {
    let mut by_end: Vec<&LogEntry> = log.iter().collect();
    by_end.sort_by_key(|entry| entry.ended());
    let mut chain: Vec<&LogEntry> = Vec::new();
    // The call that ends first leaves the most time for the rest of the chain.
    for entry in by_end {
        if chain.last().is_none_or(|last| last.ended() <= entry.at) {
            chain.push(entry);
        }
    }
    chain
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use bytes::Bytes;

    use super::*;
    use crate::aws::call::Service;

    fn entry(operation: &str, at: u64, took: u64) -> LogEntry {
        LogEntry {
            endpoint: "control".to_owned(),
            service: Service::DynamoDb,
            operation: operation.to_owned(),
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(at),
            took: Duration::from_millis(took),
            status: Some(200),
            fault: None,
            body: Bytes::new(),
        }
    }

    fn chain(log: &[LogEntry]) -> Vec<&str> {
        critical_path(log).into_iter().map(|entry| entry.operation.as_str()).collect()
    }

    #[test]
    fn what_runs_at_the_same_time_is_one_round_trip() {
        assert_eq!(chain(&[]), Vec::<&str>::new());
        let together = [entry("a", 0, 10), entry("b", 1, 10), entry("c", 9, 10)];
        assert_eq!(chain(&together), ["a"]);
        let touching = [entry("b", 10, 10), entry("a", 0, 10)];
        assert_eq!(chain(&touching), ["a", "b"], "in any order of the log");
    }

    #[test]
    fn a_long_request_does_not_hide_a_chain_beside_it() {
        let log = [entry("long poll", 0, 100), entry("a", 1, 10), entry("b", 20, 10)];
        assert_eq!(chain(&log), ["a", "b"]);
        let log =
            [entry("a", 0, 10), entry("long", 5, 100), entry("b", 12, 10), entry("c", 110, 5)];
        assert_eq!(chain(&log), ["a", "b", "c"]);
    }

    #[test]
    fn a_request_that_ends_early_begins_the_chain() {
        let log = [entry("late", 0, 30), entry("early", 5, 5), entry("then", 10, 5)];
        assert_eq!(chain(&log), ["early", "then"]);
    }
}
