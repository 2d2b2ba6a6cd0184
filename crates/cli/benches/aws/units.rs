//! The units that DynamoDB bills, summed by kind of partition key, and the most that one key may
//! carry.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use ondeck_standin::{Consumption, PartitionKey, Units};

/// What happens to each machine of one run. What its keys may carry follows from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) machines: u32,
    /// The transitions of each machine's record.
    pub(crate) transitions: u32,
    /// Whether the machines have agents, and modes wait for them.
    pub(crate) agents: bool,
}

/// What was measured while something happened.
#[derive(Debug, Clone)]
pub(crate) struct MeasuredUnits {
    workload: Workload,
    took: Duration,
    consumed: Consumption,
}

/// The units of all keys of one kind.
#[derive(Debug, Default)]
struct KindUnits {
    keys: usize,
    total: Units,
    /// The most reads and the most writes of a single key.
    busiest: Units,
}

impl MeasuredUnits {
    pub(crate) fn new(
        workload: Workload,
        took: Duration,
        parts: impl IntoIterator<Item = Consumption>,
    ) -> MeasuredUnits {
        let mut consumed = Consumption::new();
        for (key, units) in parts.into_iter().flatten() {
            *consumed.entry(key).or_default() += units;
        }
        MeasuredUnits { workload, took, consumed }
    }

    /// The keys that carry more than their one machine or run needs.
    pub(crate) fn overloaded(&self) -> Vec<String> {
        let seconds = self.took.as_secs_f64();
        let over = |(key, units): (&PartitionKey, &Units)| {
            let most = self.workload.most(&kind_of(key), seconds)?;
            let is_over = units.reads > most.reads || units.writes > most.writes;
            is_over.then(|| format!("{} carried {units:?}, may carry {most:?}", key.value))
        };
        self.consumed.iter().filter_map(over).collect()
    }

    /// Prints one line for each kind of key.
    pub(crate) fn print(&self, name: &str, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "\n{name}, {:.1} s\n", self.took.as_secs_f64())?;
        writeln!(out, "| key | keys | reads | writes | busiest: reads | busiest: writes |")?;
        writeln!(out, "| --- | --: | --: | --: | --: | --: |")?;
        for (kind, KindUnits { keys, total, busiest }) in self.kinds() {
            writeln!(
                out,
                "| `{kind}` | {keys} | {} | {} | {} | {} |",
                total.reads, total.writes, busiest.reads, busiest.writes
            )?;
        }
        Ok(())
    }

    fn kinds(&self) -> BTreeMap<String, KindUnits> {
        let mut kinds: BTreeMap<String, KindUnits> = BTreeMap::new();
        for (key, units) in &self.consumed {
            let kind = kinds.entry(kind_of(key)).or_default();
            kind.keys += 1;
            kind.total += *units;
            kind.busiest.reads = kind.busiest.reads.max(units.reads);
            kind.busiest.writes = kind.busiest.writes.max(units.writes);
        }
        kinds
    }
}

impl Workload {
    /// The most units that one key of this kind may consume within so many seconds; `None` for the
    /// kinds that all machines share by design: settings, which are only read unless refresh changes
    /// them, and the shards of lists, whose number grows with the fleet. A kind that is not listed
    /// here may consume nothing.
    fn most(self, kind: &str, seconds: f64) -> Option<Units> {
        let Workload { machines, transitions, agents } = self;
        let (machines, transitions) = (f64::from(machines), f64::from(transitions));
        // Claim and commit are parts of transactions, in which a write costs twice; and so does the event of
        // a commit.
        let is_handed_over = agents && transitions > 0.0;
        let twice = |count: f64| if is_handed_over { count } else { 0.0 };
        // Release notes on the record that the machine's ticket was sent.
        let ticket_notes = if agents && transitions > 0.0 { 1.0 } else { 0.0 };
        let (reads, writes) = match kind {
            "SETTING" => return None,
            kind if kind.starts_with("lists: ") => return None,
            "INSTANCE" => {
                let changes = transitions + twice(2.0) + ticket_notes;
                // An idle agent looks every 250 ms and with each heartbeat, for half a unit. When it
                // sees a change, it reads the record again consistently, for a whole one.
                let agent = if agents { 2.1 * seconds + 1.0 + changes } else { 0.0 };
                // So do several claims that are made together, and release or refresh.
                (agent + 2.0, changes)
            }
            // A heartbeat every 5 s, and the signals "registered" and "deregistered". Provision and release
            // look every 5 ms for 100 ms each, then every 50 ms. A refresh looks once.
            "AGENT" if agents => {
                let signals = if transitions > 0.0 { 2.0 } else { 0.0 };
                let polls = if transitions > 0.0 { 2.0 * 20.0 + 20.0 * seconds } else { 0.0 } + 1.0;
                (polls, seconds / 5.0 + 1.0 + signals)
            }
            "EVENT" => (0.0, transitions + twice(1.0)),
            // One for each provision, of 1 KB and up to 5 more for its first 12 machines.
            "SUMMARY" if transitions > 0.0 => (0.0, 6.0),
            "events-by-run" => (0.0, (transitions + twice(1.0)) * machines),
            // Provision and release read the set of machines once each. One receive brings ten
            // tickets; of those, the first claim may add its machine alone, and the others add theirs
            // together, each time in a transaction. A machine takes 19 bytes of the set.
            "RUN" if agents => {
                let bytes = 150.0 + 19.0 * machines;
                let additions = 4.0 * (machines / 10.0).ceil();
                (2.0 * (bytes / 4_096.0).ceil(), additions * (bytes / 1_024.0).ceil())
            }
            // What a run asks for is written once.
            "DEMAND" if agents => (0.0, 1.0),
            _ => (0.0, 0.0),
        };
        Some(Units { reads, writes })
    }
}

/// What precedes `#` in a key; for a key of an index also the index, since the keys of the index
/// `events-by-run` are ids of runs.
fn kind_of(key: &PartitionKey) -> String {
    let kind = key.value.split('#').next().unwrap_or_default();
    match key.index.as_deref() {
        None => kind.to_owned(),
        Some("lists") => format!("lists: {kind}"),
        Some(index) => index.to_owned(),
    }
}
