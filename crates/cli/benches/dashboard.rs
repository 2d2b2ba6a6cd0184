//! What the dashboard of a large pool costs: 5,000 machines, 50 transitions a second, three pages.
//!
//! Prints memory, CPU time and how many of the transitions the pages saw, and fails if a limit is
//! exceeded. The memory is that of a program that has also told what the pool cost and what doctor finds. Machines exist in the records only; the program is the built one, and its store a real
//! file. The first argument is the number of seconds.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should say where")]
#![expect(clippy::print_stdout, reason = "its figures")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use ondeck_core::model::timestamp::Timestamp;
use rusqlite::{Connection, params};
use serde_json::Value;

const MACHINES: u64 = 5_000;
const TRANSITIONS_A_SECOND: u64 = 50;
const PAGES: usize = 3;
const SECONDS: u64 = 60;
/// How long the last transitions may take to be seen.
const LATEST: Duration = Duration::from_secs(10);

const MOST_MEMORY_MB: f64 = 100.0;
const MOST_CPU_SHARE: f64 = 0.2;
const LEAST_SEEN: f64 = 0.99;

/// When each change was seen first, by machine and the time in its record.
type Seen = Arc<Mutex<BTreeMap<(String, u64), Instant>>>;

fn main() {
    let seconds = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(SECONDS);
    let home = tempfile::tempdir().unwrap();
    refresh(home.path());
    let mut file = Connection::open(home.path().join("ondeck.db")).unwrap();
    file.busy_timeout(Duration::from_secs(60)).unwrap();
    fill(&mut file);
    let dashboard = Dashboard::start(home.path());
    let seen = Seen::default();
    let pages: Vec<_> = (0..PAGES).map(|_| dashboard.page(seen.clone())).collect();
    for page in &pages {
        page.until_complete();
    }
    let (began, before) = (Instant::now(), dashboard.cpu_seconds());
    let made = change(&mut file, seconds);
    let wall = began.elapsed().as_secs_f64();
    let cpu_share = (dashboard.cpu_seconds() - before) / wall;
    let missed = |made: &BTreeMap<(String, u64), Instant>| {
        let seen = seen.lock().unwrap();
        made.keys().filter(|key| !seen.contains_key(*key)).count()
    };
    let ended = Instant::now();
    while missed(&made) > 0 && ended.elapsed() < LATEST {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let missed = missed(&made);
    let took = ["/cost?since=30d", "/doctor"].map(|path| dashboard.answered(path));
    let share = 1.0 - missed as f64 / made.len() as f64;
    let memory = dashboard.most_memory_mb();
    let mut delays: Vec<f64> = {
        let seen = seen.lock().unwrap();
        let delay = |(key, at): (&(String, u64), &Instant)| {
            Some(seen.get(key)?.saturating_duration_since(*at).as_secs_f64())
        };
        made.iter().filter_map(delay).collect()
    };
    delays.sort_by(f64::total_cmp);
    let delay = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
    println!(
        "dashboard of {MACHINES} machines, {} transitions in {wall:.0} s, {PAGES} pages:\n\
         memory at the most  {memory:.1} MB (limit {MOST_MEMORY_MB} MB)\n\
         CPU                 {:.1} % of a core (limit {:.0} %)\n\
         transitions seen    {:.2} % (at least {:.0} %)\n\
         seen after          {:.1} s in the median, {:.1} s for 95 %\n\
         answers             {:.1} s for /cost?since=30d, {:.1} s for /doctor",
        made.len(),
        cpu_share * 100.0,
        MOST_CPU_SHARE * 100.0,
        share * 100.0,
        LEAST_SEEN * 100.0,
        delay(0.5),
        delay(0.95),
        took[0],
        took[1],
    );
    let holds = memory <= MOST_MEMORY_MB && cpu_share <= MOST_CPU_SHARE && share >= LEAST_SEEN;
    drop(dashboard);
    std::process::exit(i32::from(!holds));
}

fn ondeck(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ondeck"));
    for (name, _) in std::env::vars_os() {
        if ["ONDECK_", "GITHUB_"].iter().any(|it| name.to_string_lossy().starts_with(it)) {
            command.env_remove(name);
        }
    }
    command.args(arguments).env("ONDECK_HOME", home).stdin(Stdio::null());
    command
}

fn refresh(home: &Path) {
    assert!(
        ondeck(home, &["refresh", "--quiet"]).stdout(Stdio::null()).status().unwrap().success()
    );
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap()
}

fn id(machine: u64) -> String {
    format!("i-0{machine:016x}")
}

/// Half of the machines are idle, half serve runs.
fn fill(file: &mut Connection) {
    let writes = file.transaction().unwrap();
    let (later, now) = ((now() + Duration::from_secs(3_600)).to_string(), now().to_string());
    for machine in 0..MACHINES {
        let (state, run) = standing(machine, 0);
        let row = "INSERT INTO instances VALUES (?,?,?,?,'large','c6i.large','on-demand',2,4096,\
                   ?,?,'','',0,0,0,'','','')";
        writes.execute(row, params![id(machine), state, run, later, now, now]).unwrap();
        let beat = "INSERT INTO heartbeats (id, at, period_ms, protocol, busy, interrupted)
            VALUES (?,?,3600000,1,0,0)";
        writes.execute(beat, params![id(machine), now]).unwrap();
    }
    writes.commit().unwrap();
}

/// State and run of a machine that has changed so many times.
fn standing(machine: u64, changes: u64) -> (&'static str, String) {
    match (machine + changes) % 2 {
        0 => ("idle", String::new()),
        _ => ("claimed", format!("{}", 16_000_000_000 + machine + changes)),
    }
}

/// Makes transitions, evenly spread. Returns when each was made.
fn change(file: &mut Connection, seconds: u64) -> BTreeMap<(String, u64), Instant> {
    let began = Instant::now();
    let mut made = BTreeMap::new();
    for n in 0..seconds * TRANSITIONS_A_SECOND {
        let due = Duration::from_millis(n * 1_000 / TRANSITIONS_A_SECOND);
        while let Some(left) = due.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
        // Neighbours in the list change at different times.
        let machine = n * 2_711 % MACHINES;
        let (state, run) = standing(machine, n / MACHINES + 1);
        let at = now();
        let sql = "UPDATE instances SET state = ?, run = ?, updated_at = ? WHERE id = ?";
        let changed = file.execute(sql, params![state, run, at.to_string(), id(machine)]);
        assert_eq!(changed.unwrap(), 1);
        made.insert((id(machine), at.millis()), Instant::now());
    }
    made
}

struct Dashboard {
    child: Child,
    address: String,
}

impl Dashboard {
    fn start(home: &Path) -> Dashboard {
        let mut command = ondeck(home, &["dashboard", "--listen=127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("dashboard: http://").unwrap();
        Dashboard { address: address.trim_end_matches('/').to_owned(), child }
    }

    /// One page, which notes the changes that it is told of.
    fn page(&self, seen: Seen) -> Page {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!("GET /events HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).unwrap();
        let shown = Arc::new(Mutex::new(0));
        let into = shown.clone();
        std::thread::spawn(move || {
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            for line in lines {
                let Some(data) = line.strip_prefix("data: ") else { continue };
                let data: Value = serde_json::from_str(data).unwrap();
                let set = data["set"].as_array().or(data["machines"].as_array());
                *into.lock().unwrap() += set.map_or(0, Vec::len);
                let at = Instant::now();
                for change in data["changes"].as_array().into_iter().flatten() {
                    let id = change["id"].as_str().unwrap().to_owned();
                    let key = (id, change["at"].as_u64().unwrap());
                    seen.lock().unwrap().entry(key).or_insert(at);
                }
            }
        });
        Page { shown }
    }

    /// Asks for a path, and returns after how many seconds the answer was there.
    fn answered(&self, path: &str) -> f64 {
        let began = Instant::now();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        began.elapsed().as_secs_f64()
    }

    fn most_memory_mb(&self) -> f64 {
        let status = self.file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1_024.0
    }

    /// The CPU time that it has used.
    fn cpu_seconds(&self) -> f64 {
        // Linux counts in hundredths, in user mode and in the kernel.
        let stat = self.file("stat");
        let after = stat.rsplit(')').next().unwrap().to_owned();
        let ticks = after.split_whitespace().skip(11).take(2);
        ticks.map(|text| text.parse::<f64>().unwrap()).sum::<f64>() / 100.0
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap()
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

struct Page {
    /// How many machines it was told of, each as often as it was.
    shown: Arc<Mutex<usize>>,
}

impl Page {
    fn until_complete(&self) {
        while *self.shown.lock().unwrap() < MACHINES as usize {
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}
