//! Many machines that exist in the records only.

use std::time::{Duration, SystemTime};

use ondeck_core::model::timestamp::Timestamp;
use rusqlite::params;

use crate::harness::Home;

/// The first machines of a crowd, each with the word that it is marked with.
pub(crate) const MARKED: [(&str, &str); 4] = [
    ("i-silent", "silent"),
    ("i-overdue", "overdue"),
    ("i-retiring", "retiring"),
    ("i-preserved", "preserved"),
];

/// Puts so many machines into the records of an empty pool: the four of [`MARKED`], then healthy ones of
/// all states. They stay healthy for three minutes.
pub(crate) fn crowd(home: &Home, count: usize) {
    let now = Timestamp::try_from(SystemTime::now()).unwrap();
    let later = |seconds| (now + Duration::from_secs(seconds)).to_string();
    let earlier = |seconds| now.before(Duration::from_secs(seconds)).to_string();
    let mut file = home.file();
    let writes = file.transaction().unwrap();
    for n in 0..count {
        let id = MARKED.get(n).map_or(format!("i-0{n:016x}"), |(id, _)| (*id).to_owned());
        let marked = MARKED.get(n).map_or("", |(_, word)| *word);
        let state = match marked {
            "" => ["idle", "running", "created", "claimed"][n % 4],
            _ => "running",
        };
        let run = if state == "idle" { String::new() } else { format!("{}", 16_203_114_507 + n) };
        let threshold = if marked == "overdue" { earlier(30) } else { later(600 + n as u64) };
        let reuse = if marked == "preserved" { "preserved" } else { "" };
        writes
            .execute(
                "INSERT INTO instances VALUES (?,?,?,?,'large','c6i.large','on-demand',2,4096,\
                 ?,?,'','',0,0,0,'',?,'')",
                params![id, state, run, threshold, earlier(900), earlier(60), reuse],
            )
            .unwrap();
        let beat = if marked == "silent" { earlier(600) } else { later(0) };
        writes
            .execute(
                "INSERT INTO heartbeats (id, at, period_ms, protocol, busy, interrupted)
                 VALUES (?,?,60000,1,0,?)",
                params![id, beat, i32::from(marked == "retiring")],
            )
            .unwrap();
    }
    writes.commit().unwrap();
}
