//! What each row must keep.
//!
//! Times are stated for a round trip of 10 ms. A computer that is busy or slow takes longer for a
//! round trip, which is measured beside each round, and the required time grows with it. So a
//! requirement says how much more than its round trips a mode may take.

/// The round trip for which the times are stated.
pub(super) const STATED_ROUND_TRIP_MS: f64 = 10.0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Requirement {
    /// The name of the row in the results.
    pub(super) row: &'static str,
    /// What the row measures, as the table has it.
    pub(super) words: &'static str,
    pub(super) bound: Bound,
}

/// What is bounded, and by how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    /// The median time of a mode that needs at least `fewest` round trips one after the other, and
    /// waits `agent_ms` for agents.
    Time { most_ms: f64, fewest: f64, agent_ms: f64 },
    /// The median time beyond what the provider and the agents took.
    TimeOverOutside { most_ms: f64 },
    /// The calls of a mode.
    Calls { most: f64 },
    /// A figure of the row as a whole.
    Figure { name: &'static str, unit: &'static str, most: f64 },
    /// A rate, or a share of the rate of `beside` where the computer is too slow for that.
    Rate { name: &'static str, least: f64, beside: &'static str, least_share: f64 },
}

const fn time(most_ms: f64, fewest: f64, agent_ms: f64) -> Bound {
    Bound::Time { most_ms, fewest, agent_ms }
}

const fn row(row: &'static str, words: &'static str, bound: Bound) -> Requirement {
    Requirement { row, words, bound }
}

const fn fleet(
    words: &'static str,
    name: &'static str,
    unit: &'static str,
    most: f64,
) -> Requirement {
    row("fleet-200", words, Bound::Figure { name, unit, most })
}

const fn idle(
    words: &'static str,
    name: &'static str,
    unit: &'static str,
    most: f64,
) -> Requirement {
    row("idle-agent", words, Bound::Figure { name, unit, most })
}

/// Round trips that no warm provision can do without: settings with what the run has, receive, claim with
/// the run's set, status, commit.
const PROVISION: f64 = 5.0;
/// And no release: the run's set, its records, release, status, tickets, their note.
const RELEASE: f64 = 6.0;

pub(super) const REQUIREMENTS: [Requirement; 23] = [
    row("warm-1-prompt", "warm provision of 1, prompt agents", time(75.0, PROVISION, 0.0)),
    row("warm-10-prompt", "warm provision of 10, prompt agents", time(85.0, PROVISION, 0.0)),
    row("warm-50-prompt", "warm provision of 50, prompt agents", time(150.0, PROVISION, 0.0)),
    row("warm-1-real", "warm provision of 1, real agents", time(150.0, PROVISION, 0.0)),
    row("warm-10-real", "warm provision of 10, real agents", time(180.0, PROVISION, 0.0)),
    row("warm-50-real", "warm provision of 50, real agents", time(250.0, PROVISION, 0.0)),
    row("release-10-prompt", "release of 10, prompt agents", time(90.0, RELEASE, 0.0)),
    row("release-10-50ms", "release of 10, agents in 50 ms", time(140.0, RELEASE, 50.0)),
    row("release-10-real", "release of 10, real agents", time(300.0, RELEASE, 0.0)),
    row("nothing-among-200", "nothing suitable among 200 tickets", time(400.0, 16.0, 0.0)),
    row("one-behind-200", "a suitable ticket behind 200", time(250.0, 20.0, 0.0)),
    row(
        "cold-2-50ms",
        "cold provision of 2, agents in 50 ms",
        Bound::TimeOverOutside { most_ms: 300.0 },
    ),
    row("refresh-empty", "refresh, nothing to do, no idle machine", Bound::Calls { most: 12.0 }),
    row(
        "refresh-one-class",
        "refresh, nothing to do, one class has idle machines",
        Bound::Calls { most: 13.0 },
    ),
    row("reap-500", "refresh that reaps 500", time(600.0, 8.0, 0.0)),
    row("noticed-10", "run id written until the agent has read it", time(50.0, 1.0, 0.0)),
    fleet("refresh of 200 machines, reads of a live record", "readsOfLiveRecord", "", 1.0),
    fleet("refresh of 200 machines, reads of terminated records", "readsOfTerminated", "", 0.0),
    fleet(
        "busiest list of 10,000 machines, extrapolated from 200, of its limit",
        "busiestListPercent",
        " %",
        80.0,
    ),
    idle("idle agent, calls a minute", "callsAMinute", "", 15.0),
    idle("idle agent, dollars a month", "dollarsAMonth", " $", 0.25),
    idle("idle agent, share of a core", "corePercent", " %", 0.2),
    row(
        "local-claims",
        "claims a second by 8 processes, local backend",
        Bound::Rate {
            name: "claimsASecond",
            least: 5_000.0,
            beside: "sqliteASecond",
            least_share: 0.34,
        },
    ),
];
