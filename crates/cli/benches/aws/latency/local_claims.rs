//! How many claims eight processes make in a second on the local backend, each with the receipt and
//! the deletion of its ticket, beside what SQLite itself does.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use ondeck_core::lifecycle::{Idle, Instance, Verdict};
use ondeck_core::model::ids::{InstanceId, ResourceClass, RunId};
use ondeck_core::model::record::MachineSpec;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Pool, Receipt, RecordScope, Store};
use ondeck_core::testkit::VirtualClock;
use ondeck_local::{Db, Home, LocalPool, LocalStore};
use rusqlite::{Connection, TransactionBehavior};
use serde_json::json;

use super::Bench;
use super::load::Load;

/// The first argument of a process that makes claims.
pub(crate) const WORKER: &str = "claims-worker";
const ROW: &str = "local-claims";
const PROCESSES: usize = 8;
/// How many machines there are for each process. The processes share one queue.
const EACH: usize = 1_000;
/// How many claims a process has under way at the same time, as a provision of ten machines has.
const AT_ONCE: usize = 10;
const ROUNDS: usize = 3;

/// Who makes the claims.
#[derive(Debug, Clone, Copy)]
enum Claimer {
    Ondeck,
    Sqlite,
}

impl Claimer {
    fn name(self) -> &'static str {
        match self {
            Claimer::Ondeck => "ondeck",
            Claimer::Sqlite => "sqlite",
        }
    }
}

pub(super) fn measure(bench: &mut Bench) {
    if !bench.wants(ROW) {
        return;
    }
    for condition in bench.conditions.clone() {
        let _load = Load::start(condition);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let [ondeck, sqlite] = [Claimer::Ondeck, Claimer::Sqlite].map(claims_a_second);
            rounds.push(json!({ "claimsASecond": ondeck, "sqliteASecond": sqlite }));
        }
        bench.add(ROW, condition, &json!({ "rounds": rounds }));
    }
}

/// Has all processes claim their machines at the same time.
fn claims_a_second(claimer: Claimer) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    match claimer {
        Claimer::Ondeck => fill(folder.path()),
        Claimer::Sqlite => fill_plain(folder.path()),
    }
    let mut workers: Vec<Worker> =
        (0..PROCESSES).map(|number| Worker::start(claimer, folder.path(), number)).collect();
    let began = Instant::now();
    workers.iter_mut().for_each(Worker::go);
    workers.iter_mut().for_each(Worker::finish);
    (PROCESSES * EACH) as f64 / began.elapsed().as_secs_f64()
}

/// A process that is ready to make its claims.
struct Worker {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(claimer: Claimer, folder: &Path, number: usize) -> Worker {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([WORKER, claimer.name()])
            .arg(folder)
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut worker = Worker { process, output };
        worker.line();
        worker
    }

    fn go(&mut self) {
        writeln!(self.process.stdin.as_mut().unwrap(), "go").unwrap();
    }

    fn finish(&mut self) {
        self.line();
        assert!(self.process.wait().unwrap().success());
    }

    fn line(&mut self) {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the worker has ended");
    }
}

/// Makes the claims of one process: `ondeck|sqlite FOLDER NUMBER`.
pub(crate) fn work(arguments: &[String]) {
    let [claimer, folder, number] = arguments else { panic!("not a worker: {arguments:?}") };
    let (folder, number) = (PathBuf::from(folder), number.parse().unwrap());
    match claimer.as_str() {
        "ondeck" => claim_by_ondeck(&folder, number),
        _ => claim_by_sqlite(&folder.join("plain.db"), number),
    }
}

/// Says that everything is open, and waits until all processes are ready.
fn await_start() {
    let mut out = std::io::stdout();
    writeln!(out, "ready").unwrap();
    out.flush().unwrap();
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

fn say_done() {
    let mut out = std::io::stdout();
    writeln!(out, "done").unwrap();
    out.flush().unwrap();
}

fn id(process: usize, machine: usize) -> InstanceId {
    InstanceId::new(format!("i-{process}-{machine}")).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap()
}

const LASTS: Duration = Duration::from_secs(3_600);

/// Makes a store with the idle machines of all processes. One of them is made by its transitions, and
/// copied.
fn fill(folder: &Path) {
    let home = Home::new(folder.to_owned());
    let db = Db::create(&home).unwrap();
    let store = LocalStore::new(db.clone());
    let spec = MachineSpec {
        resource_class: class(),
        instance_type: "c6i.large".to_owned(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mem: 4_096,
    };
    let first = InstanceId::new("i-0-0").unwrap();
    runtime().block_on(async {
        let run = RunId::new("before").unwrap();
        let pending = Instance::register(&first, &spec, &run, now(), LASTS);
        let verdict = store.write(pending.change()).await.unwrap();
        let pending = pending.settle(verdict).unwrap().activate(now(), LASTS);
        let verdict = store.write(pending.change()).await.unwrap();
        let pending = pending.settle(verdict).unwrap().release(now(), LASTS);
        let verdict = store.write(pending.change()).await.unwrap();
        pending.settle(verdict).unwrap();
        let copied = db.write(|transaction| {
            transaction.execute_batch("CREATE TEMP TABLE copy AS SELECT * FROM instances")?;
            let mut name = transaction.prepare("UPDATE copy SET id = ?")?;
            let mut put = transaction.prepare("INSERT INTO instances SELECT * FROM copy")?;
            for machine in 1..PROCESSES * EACH {
                name.execute([id(machine / EACH, machine % EACH).as_str()])?;
                put.execute([])?;
            }
            Ok(())
        });
        copied.await.unwrap();
        let listing = store.list(RecordScope::Live).await.unwrap();
        let idle = listing.records.iter().filter_map(Instance::<Idle>::believe);
        let tickets: Vec<Ticket> = idle.map(|idle| idle.ticket()).collect();
        assert_eq!(tickets.len(), PROCESSES * EACH);
        pool(db).send(&tickets, Duration::ZERO).await.unwrap();
    });
}

/// Receives tickets, claims what they announce, and deletes them, until there are none.
fn claim_by_ondeck(folder: &Path, process: usize) {
    let db = Db::open(&Home::new(folder.to_owned())).unwrap();
    let (store, pool) = (LocalStore::new(db.clone()), pool(db));
    let run = RunId::new(format!("run-{process}")).unwrap();
    runtime().block_on(async {
        await_start();
        loop {
            let received = pool.receive(&class(), AT_ONCE, LASTS).await.unwrap();
            if received.is_empty() {
                return;
            }
            let claims = received.iter().map(|message| async {
                let ticket = Ticket::from_json(&message.body).unwrap();
                let claim = Instance::announced(&ticket).claim(&run, now(), LASTS);
                let verdict = store.write(claim.change()).await.unwrap();
                assert!(matches!(verdict, Verdict::Agreed(_)), "{verdict:?}");
            });
            join_all(claims).await;
            let receipts: Vec<Receipt> = received.into_iter().map(|it| it.receipt).collect();
            pool.delete(&class(), &receipts).await.unwrap();
        }
    });
    say_done();
}

/// Tickets are visible at any time, so the clock may stand still.
fn pool(db: Db) -> LocalPool {
    LocalPool::new(db, Arc::new(VirtualClock::new()))
}

fn class() -> ResourceClass {
    ResourceClass::new("large").unwrap()
}

fn open_plain(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.busy_timeout(Duration::from_secs(20)).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "NORMAL").unwrap();
    connection
}

/// The least that a claim needs: a row that one conditional update changes, and a row for its event.
fn fill_plain(folder: &Path) {
    let mut connection = open_plain(&folder.join("plain.db"));
    let tables = "CREATE TABLE machines (id TEXT PRIMARY KEY, state TEXT, run TEXT) WITHOUT ROWID;
        CREATE TABLE events (seq INTEGER PRIMARY KEY, id TEXT, run TEXT);";
    connection.execute_batch(tables).unwrap();
    let transaction = connection.transaction().unwrap();
    for machine in 0..PROCESSES * EACH {
        let id = id(machine / EACH, machine % EACH);
        let row = "INSERT INTO machines VALUES (?, 'idle', '')";
        transaction.execute(row, [id.as_str()]).unwrap();
    }
    transaction.commit().unwrap();
}

fn claim_by_sqlite(file: &Path, process: usize) {
    let mut connection = open_plain(file);
    let run = format!("run-{process}");
    await_start();
    for machine in 0..EACH {
        let id = id(process, machine);
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let claim =
            "UPDATE machines SET state = 'claimed', run = ? WHERE id = ? AND state = 'idle'";
        let claimed = transaction.prepare_cached(claim).unwrap().execute([&run, id.as_str()]);
        assert_eq!(claimed.unwrap(), 1);
        let event = "INSERT INTO events (id, run) VALUES (?, ?)";
        transaction.prepare_cached(event).unwrap().execute([id.as_str(), &run]).unwrap();
        transaction.commit().unwrap();
    }
    say_done();
}
