//! Where each item is in the table, as decision 22 has it, and how large what is billed by size is.

use std::collections::{BTreeMap, HashMap};

use ondeck_core::model::timestamp::Timestamp;

use super::meter::{MeteredKey, Units};

const READ_BYTES: usize = 4_096;
const WRITE_BYTES: usize = 1_024;

/// The units of one read of so many bytes. What does not exist costs the minimum.
pub(super) fn read_units(bytes: usize, consistent: bool) -> Units {
    let whole = bytes.div_ceil(READ_BYTES).max(1) as f64;
    Units::reads(if consistent { whole } else { whole / 2.0 })
}

/// The units of one write of so many bytes.
pub(super) fn write_units(bytes: usize) -> Units {
    Units::writes(bytes.div_ceil(WRITE_BYTES).max(1) as f64)
}

pub(super) fn key(kind: &str, id: impl std::fmt::Display) -> MeteredKey {
    MeteredKey::of_table(format!("{kind}#{id}"))
}

/// A key without an id.
pub(super) fn plain_key(kind: &str) -> MeteredKey {
    MeteredKey::of_table(kind.to_owned())
}

pub(super) fn events_by_run(run: &str) -> MeteredKey {
    MeteredKey { index: Some("events-by-run"), value: run.to_owned() }
}

/// One shard of a list in the index `lists`.
pub(super) fn list_key(list: &str, id: &str, shards: u32) -> MeteredKey {
    let shard = digest(id) % shards.max(1);
    shard_key(list, shard)
}

pub(super) fn shard_key(list: &str, shard: u32) -> MeteredKey {
    MeteredKey { index: Some("lists"), value: format!("{list}#{shard}") }
}

/// The list of the events of a day.
pub(super) fn events_list(at: Timestamp) -> String {
    format!("EVENT-DAY#{}", &at.to_string()[..10])
}

/// The list of the summaries of a day.
pub(super) fn summaries_list(at: Timestamp) -> String {
    format!("SUMMARY-DAY#{}", &at.to_string()[..10])
}

/// FNV-1a, by which the adapter chooses shards.
fn digest(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}

/// The bytes of the settings, which are read together.
pub(super) fn settings_bytes(settings: &BTreeMap<String, String>) -> usize {
    const NAMES: usize = "PK".len() + "SETTING".len() + "SK".len() + "value".len();
    settings.iter().map(|(name, value)| NAMES + name.len() + value.len()).sum()
}

/// The bytes of a run's set of machines.
pub(super) fn set_bytes<'a>(run: &str, members: impl Iterator<Item = &'a str>) -> usize {
    // Key, names, the time of the last change and the time to live.
    const REST: usize = "PK".len() + "RUN#".len() + "SK".len() + "INSTANCES".len();
    const TIMES: usize = "instances".len() + "updatedAt".len() + 24 + "ttl".len() + 6;
    REST + TIMES + run.len() + members.map(str::len).sum::<usize>()
}

/// The index `lists`: what is on each list, and where each item is.
#[derive(Debug, Default)]
pub(super) struct ListIndex {
    entries: HashMap<String, (MeteredKey, String)>,
    lists: HashMap<MeteredKey, BTreeMap<(String, String), usize>>,
}

/// The place of an item in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListEntry {
    pub(super) list: MeteredKey,
    pub(super) sort: String,
}

impl ListIndex {
    /// Puts an item on a list, or on none. Returns the keys of the index that the change writes: none
    /// if nothing changes, and both places of an item that moves.
    pub(super) fn put(
        &mut self,
        item: &str,
        sk: &str,
        entry: Option<ListEntry>,
    ) -> Vec<MeteredKey> {
        let before = self.entries.get(item).cloned();
        let same = match (&before, &entry) {
            (Some((list, sort)), Some(new)) => *list == new.list && *sort == new.sort,
            (None, None) => true,
            _ => false,
        };
        if same {
            return Vec::new();
        }
        let mut written = Vec::new();
        if let Some((list, sort)) = before {
            self.entries.remove(item);
            if let Some(entries) = self.lists.get_mut(&list) {
                entries.remove(&(sort, item.to_owned()));
            }
            written.push(list);
        }
        if let Some(ListEntry { list, sort }) = entry {
            const NAMES: usize = "PK".len() + "SK".len() + "listKey".len() + "listSort".len();
            let bytes = NAMES + item.len() + sk.len() + list.value.len() + sort.len();
            let entries = self.lists.entry(list.clone()).or_default();
            entries.insert((sort.clone(), item.to_owned()), bytes);
            self.entries.insert(item.to_owned(), (list.clone(), sort));
            written.push(list);
        }
        written
    }

    /// The bytes that a query of one shard reads, before a bound if there is one, and the number of
    /// entries.
    pub(super) fn query(&self, list: &MeteredKey, bound: Option<&str>) -> (usize, usize) {
        let Some(entries) = self.lists.get(list) else { return (0, 0) };
        let before = |sort: &str| bound.is_none_or(|bound| sort < bound);
        let found = entries.iter().take_while(|((sort, _), _)| before(sort));
        found.fold((0, 0), |(bytes, count), (_, size)| (bytes + size, count + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(list: &str, sort: &str) -> Option<ListEntry> {
        Some(ListEntry { list: shard_key(list, 0), sort: sort.to_owned() })
    }

    #[test]
    fn an_item_that_moves_is_written_at_both_places() {
        let mut index = ListIndex::default();
        let live = shard_key("LIVE", 0);
        let placed = index.put("INSTANCE#i-1", "RECORD", entry("LIVE", "1"));
        assert_eq!(placed, std::slice::from_ref(&live));
        assert!(index.put("INSTANCE#i-1", "RECORD", entry("LIVE", "1")).is_empty());
        let moved = index.put("INSTANCE#i-1", "RECORD", entry("LIVE", "2"));
        assert_eq!(moved, [live.clone(), live.clone()]);
        let bytes = "PKSKlistKeylistSort".len() + "INSTANCE#i-1RECORDLIVE#02".len();
        assert_eq!(index.query(&live, None), (bytes, 1));
        assert_eq!(index.query(&live, Some("2")), (0, 0));
        let removed = index.put("INSTANCE#i-1", "RECORD", None);
        assert_eq!(removed, std::slice::from_ref(&live));
        assert_eq!(index.query(&live, None), (0, 0));
    }

    #[test]
    fn sizes_round_up() {
        assert_eq!(read_units(0, true), Units::reads(1.0));
        assert_eq!(read_units(4_097, false), Units::reads(1.0));
        assert_eq!(write_units(1_025), Units::writes(2.0));
    }
}
