//! A storm over the local backend: processes, and the one file that they share. An agent that is
//! killed stays dead, and so does its machine: no supervisor starts it again here.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use ondeck_core::audit::InstanceWrite;
use ondeck_core::model::ids::InstanceId;
use ondeck_standin::not_applicable;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::small_disk::SmallDisk;
use super::storm::{self, StormTarget};
use super::storm_log::StormLog;
use super::{audit, seed};
use crate::harness::{self, Driven, Home, begun_by};

const SETTINGS: [&str; 3] =
    ["--local-duplicate-tickets=true", "--local-boot-ms=100", "--local-capacity=24"];

/// How long the program waits for others to let go of the file.
const PATIENCE: Duration = Duration::from_secs(20);

/// The file's own record of every write, independent of what the writer reports about it.
const WITNESS: &str = "
CREATE TABLE witness (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT,
    state TEXT, run TEXT, threshold TEXT, updated_at TEXT,
    new_state TEXT, new_run TEXT, new_threshold TEXT, new_updated_at TEXT
);
CREATE TRIGGER witness_insert AFTER INSERT ON instances BEGIN
    INSERT INTO witness VALUES (NULL, new.id, NULL, NULL, NULL, NULL,
        new.state, new.run, new.threshold, new.updated_at);
END;
CREATE TRIGGER witness_update AFTER UPDATE ON instances BEGIN
    INSERT INTO witness VALUES (NULL, new.id, old.state, old.run, old.threshold, old.updated_at,
        new.state, new.run, new.threshold, new.updated_at);
END;
CREATE TRIGGER witness_delete AFTER DELETE ON instances BEGIN
    INSERT INTO witness VALUES (NULL, old.id, old.state, old.run, old.threshold, old.updated_at,
        NULL, NULL, NULL, NULL);
END;";

/// The program, told to live on when a file would get too large for it.
const UNHARMED: &str = r#"trap "" XFSZ; exec "$0" "$@""#;

#[test]
fn a_storm_over_one_file_and_many_processes() {
    let seed = seed();
    let target = LocalTarget::new();
    storm::over(&target, seed);
}

struct LocalTarget {
    home: Home,
    disk: Option<SmallDisk>,
}

impl LocalTarget {
    fn new() -> LocalTarget {
        let disk = SmallDisk::mount();
        let home = match &disk {
            Some(disk) => Home::at(disk.path().join("home")),
            None => {
                not_applicable("the right to mount: a disk that fills up");
                Home::bare()
            }
        };
        let target = LocalTarget { home, disk };
        target.ondeck(&[&["refresh"], &harness::TIMES[..]].concat()).succeeded();
        target.refresh(&[&storm::TIMES[..], &SETTINGS].concat());
        target.home.file().execute_batch(WITNESS).unwrap();
        target
    }

    /// Another writer locks the file for a while.
    fn lock(&self, log: &StormLog, rng: &mut Rng) {
        let longer = PATIENCE + Duration::from_millis(rng.u64(500..2_500));
        let span = match rng.u8(..10) {
            0..5 => Duration::from_millis(rng.u64(200..2_000)),
            5..8 => Duration::from_millis(rng.u64(2_000..7_000)),
            // No more than one in a short storm, or no run would get anything done.
            _ if log.left() > longer => longer,
            _ => Duration::from_secs(1),
        };
        let file = self.home.file();
        file.busy_timeout(Duration::from_secs(1)).unwrap();
        if file.execute_batch("BEGIN EXCLUSIVE").is_err() {
            return;
        }
        let kind = if span > PATIENCE { "locked file for too long" } else { "locked file" };
        log.injected(kind, &format!(" for {span:?}"));
        log.wait(span);
        file.execute_batch("ROLLBACK").unwrap();
    }

    /// No room on the disk; where this user may not mount one, a disk that fails.
    fn fill(&self, log: &StormLog, rng: &mut Rng) {
        let Some(disk) = &self.disk else { return self.fail(log, rng) };
        let span = Duration::from_millis(rng.u64(300..5_000));
        // What was written and has been copied is room that the next writer would use.
        let file = self.home.file();
        file.busy_timeout(Duration::from_millis(500)).unwrap();
        file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).ok();
        let full = disk.fill();
        log.injected("full disk", &format!(" for {span:?}"));
        log.wait(span);
        drop(full);
    }

    /// Every write to a file fails, for all who are at work now and whomever they start.
    fn fail(&self, log: &StormLog, rng: &mut Rng) {
        let span = Duration::from_millis(rng.u64(300..4_000));
        self.limit(Some(0));
        log.injected("failing disk", &format!(" for {span:?}"));
        log.wait(span);
        while self.limit(None) > 0 {}
    }

    /// Limits the size of files, and gives how many were limited before.
    fn limit(&self, current: Option<u64>) -> usize {
        let limited = |pid: &i32| {
            let pid = Pid::from_raw(*pid);
            // One that is gone needs no limit.
            let before = prlimit(pid, Resource::Fsize, Rlimit { current, maximum: None });
            before.is_ok_and(|before| before.current == Some(0))
        };
        self.home.processes().iter().filter(|pid| limited(pid)).count()
    }

    /// The home is somewhere else, and no process can make another in its place.
    fn take_away(&self, log: &StormLog, rng: &mut Rng) {
        let span = Duration::from_millis(rng.u64(300..5_000));
        let (home, away) = (self.home.dir(), self.home.dir().with_extension("away"));
        fs::write(&away, "").unwrap();
        // At one stroke: a process that found nothing there would begin anew.
        let change_places = || renameat_with(CWD, home, CWD, &away, RenameFlags::EXCHANGE).unwrap();
        change_places();
        log.injected("store away", &format!(" for {span:?}"));
        log.wait(span);
        change_places();
    }
}

impl Driven for LocalTarget {
    fn command(&self, arguments: &[&str]) -> Command {
        begun_by(UNHARMED, &self.home.command(arguments))
    }
}

impl StormTarget for LocalTarget {
    fn name(&self) -> &'static str {
        "local"
    }

    fn agents(&self) -> Vec<(String, i32)> {
        self.home.agents().into_iter().collect()
    }

    fn proofs(&self) -> PathBuf {
        audit::proofs(&self.home)
    }

    fn inject_faults(&self, log: &StormLog, mut rng: Rng) {
        loop {
            log.wait(Duration::from_millis(rng.u64(500..3_000)));
            if log.is_over() {
                return;
            }
            match rng.u8(..4) {
                0 => self.lock(log, &mut rng),
                1 => self.fill(log, &mut rng),
                2 => self.fail(log, &mut rng),
                _ => self.take_away(log, &mut rng),
            }
        }
    }

    fn writes(&self) -> Vec<InstanceWrite> {
        let file = self.home.file();
        let mut statement = file.prepare("SELECT * FROM witness ORDER BY seq").unwrap();
        let row = |row: &rusqlite::Row<'_>, from: usize| {
            let text = |column| row.get::<_, Option<String>>(column).unwrap();
            let state = text(from)?;
            let [run, threshold, updated_at] =
                [1, 2, 3].map(|next| text(from + next).unwrap_or_default());
            Some(audit::recorded_state(&state, &run, &threshold, &updated_at))
        };
        let write = |found: &rusqlite::Row<'_>| {
            let id = InstanceId::new(found.get::<_, String>("id")?).unwrap();
            Ok(InstanceWrite { id, before: row(found, 2), after: row(found, 6) })
        };
        statement.query_map([], write).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn left(&self) -> Vec<String> {
        let mut left = audit::left_behind(&self.home);
        let tickets = self.home.texts("SELECT body FROM tickets");
        left.extend(tickets.into_iter().map(|ticket| format!("ticket left: {ticket}")));
        left
    }

    fn problems(&self) -> Vec<String> {
        audit::breaches(&self.home)
    }
}
