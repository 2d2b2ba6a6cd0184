//! The read and write units that DynamoDB bills for a call, for each partition key of the table and
//! of its indexes.
//!
//! The rules are those of the DynamoDB Developer Guide:
//! - "DynamoDB read and write operations": a read rounds up to 4 KB, an eventually consistent one
//!   costs half; BatchGetItem rounds each item, Query the sum of its items; a write rounds the larger
//!   of the old and the new item up to 1 KB; a transaction costs twice; what does not exist costs the
//!   minimum; a refused conditional write is billed by the item that is there.
//! - "Using Global Secondary Indexes", "Provisioned throughput considerations": an entry of an index
//!   costs a write when it is added, removed, or its projected attributes change, and two when its
//!   key changes. A query sums the sizes of the entries. The 100 bytes that each entry occupies in
//!   addition count as storage only.
//! - "DynamoDB item sizes and formats".
//! - API reference, Query: one that finds nothing consumes the minimum.
//!
//! The guide does not say what a transaction costs in an index. It is counted twice as well, which
//! can only be too much.

mod reads;
mod schema;
mod size;
mod writes;

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde_json::{Map, Value};

pub(crate) use reads::reads;
pub(crate) use schema::TableSchema;
pub(crate) use writes::{Write, writes};

/// The bytes that one read unit pays for.
const READ_BYTES: usize = 4_096;
/// The bytes that one write unit pays for.
const WRITE_BYTES: usize = 1_024;

/// An item in the JSON of the API.
pub(crate) type Item = Map<String, Value>;

/// Units that were consumed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Units {
    pub reads: f64,
    pub writes: f64,
}

impl AddAssign for Units {
    fn add_assign(&mut self, other: Units) {
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

/// A value of the partition key of a table or of an index. DynamoDB limits the units that each of
/// them may consume in a second.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionKey {
    pub table: String,
    /// The name of the index; `None` for the table itself.
    pub index: Option<String>,
    pub value: String,
}

/// The units of each partition key.
pub type Consumption = BTreeMap<PartitionKey, Units>;

/// The schemas of the tables that a call names.
pub(crate) type TableSchemas = BTreeMap<String, TableSchema>;

/// Why the units of a call are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unmeasurable(pub(crate) &'static str);

/// The units of one read of so many bytes.
fn read_units(bytes: usize, consistent: bool) -> Units {
    let whole = bytes.div_ceil(READ_BYTES).max(1) as f64;
    Units { reads: if consistent { whole } else { whole / 2.0 }, writes: 0.0 }
}

/// The units of one write of so many bytes.
fn write_units(bytes: usize) -> f64 {
    bytes.div_ceil(WRITE_BYTES).max(1) as f64
}
