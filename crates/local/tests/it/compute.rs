use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::ids::{InstanceId, IntentId};
use ondeck_core::model::requirements::{ClassSize, Requirements};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Compute, Forge, Host, Launched, Order, PortError, Runner, Store};
use ondeck_core::testkit::contract::compute_suite;
use ondeck_local::{
    AgentCommand, Db, JobState, LocalCompute, LocalForge, LocalHost, LocalRunner, announce,
    boot_time,
};

use crate::harness::{
    self, LocalHarness, RealClock, SECRET, UNMARKED, child_arguments, eventually, instance,
    is_running, label, processes_of, run, spawn, telling, unique,
};

/// An agent that does nothing until the test is over.
const IDLER: &str = "exec sleep 60";

fn order(intent: &str, count: u32) -> Order {
    Order {
        intent: IntentId::new(intent).unwrap(),
        run: run("7"),
        count,
        requirements: Requirements {
            class: "large".parse().unwrap(),
            size: ClassSize { cpu: 2, mem: 4_096 },
            usage: "spot".parse().unwrap(),
            types: "c* m*".parse().unwrap(),
        },
    }
}

async fn end(compute: &dyn Compute, launched: &Launched) {
    let ids: Vec<_> = launched.machines.iter().map(|machine| machine.id.clone()).collect();
    compute.terminate(&ids).await.unwrap();
}

#[tokio::test]
async fn it_keeps_the_contract_of_compute() {
    let harness = LocalHarness::new();
    compute_suite(&harness.compute(IDLER), &order("suite", 3), &Settings::default()).await;
}

#[tokio::test]
async fn a_machine_is_a_process_that_other_processes_find() {
    let harness = LocalHarness::new();
    let compute = harness.compute("echo \"$@\"; exec sleep 60");
    let launched = harness.launch(&compute, &order("one", 2)).await.unwrap();
    assert_eq!((launched.machines.len(), launched.shortfalls.len()), (2, 0));
    let machine = &launched.machines[0];
    assert_eq!(machine.spec.instance_type, "c6i.large");
    assert!(machine.id.as_str().starts_with("i-") && machine.id.as_str().len() == 19);

    let mut listed = harness.compute(IDLER).machines().await.unwrap();
    let mut expected = launched.machines.clone();
    expected.sort_by(|a, b| a.id.cmp(&b.id));
    listed.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(listed, expected, "by another who looks");

    let log = harness.home.log(&machine.id);
    let said = eventually("the agent's first words", || async {
        std::fs::read_to_string(&log).ok().filter(|said| said.ends_with('\n'))
    })
    .await;
    let home = harness.home.dir().display();
    assert_eq!(said, format!("--home {home} --instance-id {}\n", machine.id));

    end(&compute, &launched).await;
    assert_eq!(compute.machines().await.unwrap(), []);
    assert_eq!(processes_of(&machine.id), 0);
    assert!(!harness.home.machine(&machine.id).exists());
    assert!(log.exists(), "the log outlives the machine");
    compute.terminate(&[machine.id.clone(), instance("i-unknown")]).await.unwrap();
}

#[tokio::test]
async fn the_directory_of_a_terminated_machine_is_removed() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let (ended, up) = (order("ended", 1), order("up", 1));
    let (ended, up) = (
        harness.launch(&compute, &ended).await.unwrap(),
        harness.launch(&compute, &up).await.unwrap(),
    );
    let folder = |launched: &Launched| harness.home.machine(&launched.machines[0].id);
    end(&compute, &ended).await;
    // As if the process that terminated it had been killed before it removed the directory.
    std::fs::create_dir_all(folder(&ended).join("work")).unwrap();
    assert_eq!(compute.machines().await.unwrap(), up.machines);
    assert!(!folder(&ended).exists());
    assert!(folder(&up).exists(), "that of a machine which is up stays");
    end(&compute, &up).await;
}

#[tokio::test]
async fn a_machine_with_a_corrupt_row_keeps_its_directory() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let launched = harness.launch(&compute, &order("one", 1)).await.unwrap();
    harness.sql("UPDATE machines SET cpu = 'two'");
    assert_eq!(compute.machines().await.unwrap(), []);
    assert!(harness.home.machine(&launched.machines[0].id).exists());
    end(&compute, &launched).await;
}

#[tokio::test]
async fn a_launch_under_the_same_intent_happens_once() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let first = harness.launch(&compute, &order("same", 2)).await.unwrap();
    let again = harness.launch(&harness.compute(IDLER), &order("same", 2)).await.unwrap();
    let ids = |launched: &Launched| {
        let mut ids: Vec<_> = launched.machines.iter().map(|m| m.id.clone()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&again), ids(&first));
    assert_eq!(compute.machines().await.unwrap().len(), 2);
    end(&compute, &first).await;
}

#[tokio::test]
async fn a_repeated_launch_gives_only_what_there_is() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let first = harness.launch(&compute, &order("same", 3)).await.unwrap();
    let [ended, never, up] = [0, 1, 2].map(|n| first.machines[n].id.clone());
    compute.terminate(std::slice::from_ref(&ended)).await.unwrap();
    harness.sql(&format!(
        "UPDATE machines SET pid = NULL, launched_at = '2020-01-01T00:00:00.000Z'
         WHERE id = '{never}'"
    ));
    let again = harness.launch(&compute, &order("same", 3)).await.unwrap();
    let ids: Vec<_> = again.machines.iter().map(|machine| machine.id.clone()).collect();
    assert_eq!(ids, [up]);
    assert_eq!(again.shortfalls, ["1 of 3 are there of launch same"]);
    end(&compute, &first).await;
}

#[tokio::test]
async fn terminate_finds_processes_of_another_session() {
    let harness = LocalHarness::new();
    let compute = harness.compute("setsid sh -c 'setsid sleep 61 & exec sleep 62' & exec sleep 60");
    let launched = harness.launch(&compute, &order("one", 1)).await.unwrap();
    let id = &launched.machines[0].id;
    eventually("three processes", || async { (processes_of(id) == 3).then_some(()) }).await;
    end(&compute, &launched).await;
    assert_eq!(processes_of(id), 0);
}

#[tokio::test]
async fn terminate_finds_processes_without_the_marker() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let launched = harness.launch(&compute, &order("one", 1)).await.unwrap();
    let id = launched.machines[0].id.clone();
    let clock = Arc::new(RealClock);
    let runner = LocalRunner::new(harness.db.clone(), harness.home.clone(), clock, id);
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let forge = harness.forge();
    let argv = ["sh", "-c", UNMARKED].map(str::to_owned);
    let job = forge.queue(&run("7"), &argv).await.unwrap();
    let label = label("7");
    let over = eventually("the job's end", || async {
        forge.job(job).await.unwrap().filter(|job| job.state.is_over())
    });
    tokio::select! {
        why = runner.work(&label) => panic!("the runner died: {why}"),
        over = over => assert_eq!(over.exit_code, Some(0)),
    }
    let left = String::from_utf8(forge.output(job, 0).await.unwrap()[0].bytes.clone()).unwrap();
    assert!(is_running(&left), "{left}");
    // A second connection finds the groups in the file alone, as the control plane does.
    let elsewhere = harness::compute(&Db::open(&harness.home).unwrap(), &harness.home, IDLER);
    end(&elsewhere, &launched).await;
    assert!(!is_running(&left), "{left}");
}

#[tokio::test]
async fn a_machine_of_another_boot_is_not_up() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let launched = harness.launch(&compute, &order("one", 2)).await.unwrap();
    let id = &launched.machines[0].id;
    harness.sql(&format!("UPDATE machines SET boot = 'another' WHERE id = '{id}'"));
    assert_eq!(compute.machines().await.unwrap(), [launched.machines[1].clone()]);
    end(&compute, &launched).await;
}

/// Makes it impossible to mark a machine as terminated.
fn obstruct(harness: &LocalHarness, id: &InstanceId) {
    harness.sql(&format!(
        "CREATE TRIGGER obstruct BEFORE UPDATE ON machines WHEN NEW.id = '{id}'
         BEGIN SELECT RAISE(ABORT, 'obstructed'); END"
    ));
}

#[tokio::test]
async fn a_machine_that_cannot_be_terminated_keeps_no_other() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let launched = harness.launch(&compute, &order("one", 3)).await.unwrap();
    let ids: Vec<_> = launched.machines.iter().map(|machine| machine.id.clone()).collect();
    obstruct(&harness, &ids[1]);
    harness.sql(&format!("UPDATE machines SET pid = 'none' WHERE id = '{}'", ids[2]));
    let answer = compute.terminate(&ids).await;
    let Err(PortError::Unavailable { service: "compute", reason }) = answer else {
        panic!("{answer:?}")
    };
    assert!(reason.contains(ids[1].as_str()) && reason.contains(ids[2].as_str()), "{reason}");
    assert!(!reason.contains(ids[0].as_str()), "{reason}");
    assert!(!harness.home.machine(&ids[0]).exists(), "it is ended with all that belongs to it");
    let first = ids[0].to_string();
    let ended = harness.db.call(|connection| {
        let sql = "SELECT ended_at <> '' FROM machines WHERE id = ?1";
        connection.query_row(sql, [first], |row| row.get(0))
    });
    assert_eq!(ended.await, Ok(true));
    harness.sql("DROP TRIGGER obstruct; UPDATE machines SET pid = NULL WHERE pid = 'none'");
    end(&compute, &launched).await;
}

#[tokio::test]
async fn a_dead_machine_that_cannot_be_terminated_hides_no_other() {
    let harness = LocalHarness::new();
    let up = harness.launch(&harness.compute(IDLER), &order("up", 1)).await.unwrap();
    let compute = harness.compute("exec true");
    let dead = harness.launch(&compute, &order("dead", 2)).await.unwrap();
    for machine in &dead.machines {
        eventually("its death", || async { (processes_of(&machine.id) == 0).then_some(()) }).await;
    }
    obstruct(&harness, &dead.machines[0].id);
    assert_eq!(compute.machines().await, Ok(up.machines.clone()));
    assert!(!harness.home.machine(&dead.machines[1].id).exists(), "the other one is ended");
    end(&compute, &up).await;
}

#[tokio::test]
async fn capacity_is_shared_and_partial_launches_say_why() {
    let harness = LocalHarness::new();
    harness.set(&[("local-capacity", "3")]).await;
    let compute = harness.compute(IDLER);
    let (one, two) = (order("one", 2), order("two", 3));
    let (first, second) =
        tokio::join!(harness.launch(&compute, &one), harness.launch(&compute, &two));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.machines.len() + second.machines.len(), 3);
    let shortfalls = [first.shortfalls.clone(), second.shortfalls.clone()].concat();
    assert!(!shortfalls.is_empty());
    for shortfall in shortfalls {
        assert!(shortfall.starts_with("InsufficientInstanceCapacity: "), "{shortfall}");
        assert!(shortfall.ends_with("launched, the home's capacity is 3"), "{shortfall}");
    }
    end(&compute, &first).await;
    let third = harness.launch(&compute, &order("three", 9)).await.unwrap();
    assert_eq!(third.machines.len(), first.machines.len(), "what was ended makes room");
    end(&compute, &second).await;
    end(&compute, &third).await;
}

#[tokio::test]
async fn a_type_that_is_used_up_gives_way_to_the_next() {
    let harness = LocalHarness::new();
    let catalogue = r#"[{"type":"c.small","cpu":2,"mem":4096,"capacity":1,"bootMs":9},
        {"type":"m.big","cpu":2,"mem":8192,"capacity":1},
        {"type":"c.paid","cpu":2,"mem":4096,"spot":false}]"#;
    harness.set(&[("local-catalogue", catalogue), ("local-boot-ms", "5")]).await;
    let compute = harness.compute(IDLER);
    let launched = harness.launch(&compute, &order("one", 3)).await.unwrap();
    let types: Vec<_> =
        launched.machines.iter().map(|machine| machine.spec.instance_type.as_str()).collect();
    assert_eq!(types, ["c.small", "m.big"]);
    assert_eq!(
        launched.shortfalls,
        ["InsufficientInstanceCapacity: 2 of 3 launched, the capacity of c.small is 1, \
          the capacity of m.big is 1"]
    );
    let boot = |n: usize| boot_time(&harness.db, &launched.machines[n].id);
    assert_eq!(boot(0).await, Ok(Duration::from_millis(9)), "its own");
    assert_eq!(boot(1).await, Ok(Duration::from_millis(5)), "the default for all types");
    end(&compute, &launched).await;
}

#[tokio::test]
async fn launches_that_cannot_be_say_so() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let mut nothing = order("one", 1);
    nothing.requirements.size.cpu = 3;
    let launched = harness.launch(&compute, &nothing).await.unwrap();
    assert!(launched.machines.is_empty());
    assert!(launched.shortfalls[0].starts_with("no type of the catalogue has 3 vCPU"));

    let missing =
        AgentCommand { program: "/no/such/agent".into(), args: Vec::new(), variables: &[] };
    let clock = Arc::new(RealClock);
    let missing = LocalCompute::new(harness.db.clone(), harness.home.clone(), clock, missing);
    let launched = harness.launch(&missing, &order("two", 2)).await.unwrap();
    assert!(launched.machines.is_empty());
    assert_eq!(launched.shortfalls.len(), 2);
    assert!(launched.shortfalls[0].starts_with("cannot start /no/such/agent"));
    assert_eq!(missing.machines().await.unwrap(), []);

    harness.set(&[("local-launch-failure", "UnfulfillableCapacity: try later")]).await;
    let launched = harness.launch(&compute, &order("three", 2)).await.unwrap();
    assert!(launched.machines.is_empty());
    assert_eq!(launched.shortfalls, ["UnfulfillableCapacity: try later"]);
}

#[tokio::test]
async fn settings_are_checked_when_they_are_set_up() {
    let harness = LocalHarness::new();
    let mut settings = Settings::default();
    let compute = harness.compute(IDLER);
    compute.set_up(&settings).await.unwrap();
    settings.backend.insert("local-capacity".into(), "lots".into());
    let answer = compute.set_up(&settings).await;
    assert!(matches!(answer, Err(PortError::Setting(_))), "{answer:?}");
}

#[tokio::test]
async fn a_log_goes_when_its_machine_is_forgotten() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let launched = harness.launch(&compute, &order("one", 2)).await.unwrap();
    let [kept, forgotten] = [0, 1].map(|n| harness.home.log(&launched.machines[n].id));
    let other = harness.home.dir().join("logs/notes.txt");
    std::fs::write(&other, "mine").unwrap();
    end(&compute, &launched).await;
    compute.set_up(&Settings::default()).await.unwrap();
    assert!(kept.exists() && forgotten.exists(), "they may still be wanted");
    let id = &launched.machines[1].id;
    harness.sql(&format!("UPDATE machines SET ended_at = '2020' WHERE id = '{id}'"));
    harness.store().forget(Timestamp::parse("2021-01-01T00:00:00Z").unwrap()).await.unwrap();
    compute.set_up(&Settings::default()).await.unwrap();
    assert!(kept.exists() && !forgotten.exists());
    assert!(other.exists(), "it is not the log of a machine");
}

#[tokio::test]
async fn a_home_and_its_machines_are_for_one_user() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let launched = harness.launch(&compute, &order("one", 1)).await.unwrap();
    let id = &launched.machines[0].id;
    let clock = Arc::new(RealClock);
    let (db, home) = (harness.db.clone(), harness.home.clone());
    LocalHost::new(db.clone(), home.clone(), id.clone(), Arc::new(RealClock))
        .run_script("true")
        .await
        .unwrap();
    LocalRunner::new(db, home, clock, id.clone()).prepare().await.unwrap();
    let machine = harness.home.machine(id);
    let inside = ["work", "tmp", "prepared", "home"].map(|name| machine.join(name));
    for folder in inside.into_iter().chain([harness.home.dir().to_owned(), machine.clone()]) {
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", folder.display());
    }
    end(&compute, &launched).await;
}

#[tokio::test]
async fn a_machine_whose_agent_died_is_terminated_with_all_its_processes() {
    let harness = LocalHarness::new();
    let compute = harness.compute("setsid sleep 61 & exec sleep 0.2");
    let launched = harness.launch(&compute, &order("one", 1)).await.unwrap();
    let id = &launched.machines[0].id;
    let forge = harness.forge();
    let runner =
        LocalRunner::new(harness.db.clone(), harness.home.clone(), Arc::new(RealClock), id.clone());
    runner.register(&label("7")).await.unwrap();
    let job = forge.queue(&run("7"), &["true".into()]).await.unwrap();
    harness.sql(&format!("UPDATE jobs SET state = 'running', instance = '{id}'"));

    let job = eventually("the next listing records the job as failed", || async {
        forge.job(job).await.unwrap().filter(|job| job.state.is_over())
    })
    .await;
    assert_eq!((job.state, job.exit_code), (JobState::Done, Some(143)));
    assert_eq!(processes_of(id), 1, "what the agent has left");
    assert_eq!(compute.machines().await.unwrap(), []);
    assert_eq!(processes_of(id), 0);
    let runners = forge.runners().await.unwrap();
    assert!(runners.len() == 1 && !runners[0].online, "an offline runner, for refresh to remove");
}

#[tokio::test]
async fn an_agent_announces_itself_unless_its_machine_has_ended() {
    let harness = LocalHarness::new();
    let compute = harness.compute(IDLER);
    let insert = |id: &str, at: &str| {
        harness.sql(&format!(
            "INSERT INTO machines (id, resource_class, instance_type, usage_class, cpu, mem,
             intent, run, launched_at) VALUES ('{id}', 'large', 'c6i.large', 'spot', 2, 4096,
             'x', '7', '{at}')"
        ));
    };
    // As a launcher leaves it that is killed before it started the process.
    insert("i-never", "2025-05-31T12:00:00.000Z");
    insert("i-late", "2025-05-31T12:00:00.000Z");
    announce(&harness.db, &instance("i-late")).await.unwrap();
    let listed = compute.machines().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, instance("i-late"));
    for id in ["i-never", "i-unknown"] {
        let answer = announce(&harness.db, &instance(id)).await;
        assert!(matches!(answer, Err(PortError::Unusable { .. })), "{id}: {answer:?}");
    }
    // The calling process is the machine here, and is not killed.
    compute.terminate(&[instance("i-late")]).await.unwrap();
}

#[tokio::test]
async fn a_launcher_that_is_killed_half_way_loses_no_machine() {
    let harness = LocalHarness::new();
    let status = spawn("compute::launcher", &harness.home, "l").wait().unwrap();
    assert!(!status.success(), "it was killed by the machine that it had just started");
    let compute = harness.compute(IDLER);
    let all = compute.machines().await.unwrap();
    assert_eq!(all.len(), 20, "what is on the list has time to come up");
    let started: Vec<_> = all.iter().filter(|machine| processes_of(&machine.id) > 0).collect();
    assert!(!started.is_empty(), "one of them has killed it");
    for machine in started {
        let id = machine.id.to_string();
        eventually("the machine's own word", || async {
            let sql = "SELECT pid IS NOT NULL FROM machines WHERE id = ?1";
            let id = id.clone();
            let noted = harness.db.call(move |conn| conn.query_row(sql, [id], |row| row.get(0)));
            noted.await.unwrap_or(false).then_some(())
        })
        .await;
    }
    let again = harness.launch(&compute, &order("killed", 20)).await.unwrap();
    assert_eq!(again.machines, all, "asked again, it gives what there is");
    end(&compute, &again).await;
    assert!(all.iter().all(|machine| processes_of(&machine.id) == 0));
    assert_eq!(compute.machines().await.unwrap(), []);
}

/// The launcher of the test above. Its first machine kills it while it starts the others, before any
/// of them is recorded. Each machine then goes on as `agent`.
#[tokio::test]
async fn launcher() {
    let Some((home, name)) = child_arguments() else { return };
    let exe = std::env::current_exe().unwrap();
    // By pid: the parent of a machine that starts too late is another process.
    let me = std::process::id();
    let telling = telling(&home, &name);
    let script = format!("kill -9 {me}; {telling}; exec {} --exact compute::agent", exe.display());
    let compute = harness::compute(&Db::open(&home).unwrap(), &home, &script);
    let launched = compute.launch(&order("killed", 20), &Settings::default()).await;
    panic!("it was not killed: {launched:?}");
}

/// The agent of the test above, which only announces itself.
#[tokio::test]
async fn agent() {
    let Some((home, _)) = child_arguments() else { return };
    let id = instance(&std::env::var("ONDECK_INSTANCE_ID").unwrap());
    announce(&Db::open(&home).unwrap(), &id).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_secret_of_the_launcher_reaches_no_machine_and_no_job() {
    let harness = LocalHarness::new();
    let told = spawn("compute::launcher_with_a_secret", &harness.home, "s").wait().unwrap();
    assert!(told.success(), "see above for what it found");
}

/// A process with a secret in its environment that launches a machine and runs a job.
#[tokio::test]
async fn launcher_with_a_secret() {
    let Some((home, _)) = child_arguments() else { return };
    assert!(std::env::var_os(SECRET).is_some());
    let assert_clean = |who: &str, environment: &str| {
        assert!(environment.contains("PATH="), "{who} has none at all: {environment}");
        assert!(!environment.contains(SECRET), "{who} knows it");
    };
    let db = Db::open(&home).unwrap();
    let compute = harness::compute(&db, &home, "env; echo over; exec sleep 60");
    let launched = compute.launch(&order("one", 1), &Settings::default()).await.unwrap();
    let log = home.log(&launched.machines[0].id);
    let environment = eventually("the agent's words", || async {
        std::fs::read_to_string(&log).ok().filter(|said| said.ends_with("over\n"))
    })
    .await;
    assert_clean("the agent", &environment);
    end(&compute, &launched).await;

    let id = unique("secret");
    let host = LocalHost::new(db.clone(), home.clone(), id.clone(), Arc::new(RealClock));
    host.run_script("env > \"$ONDECK_HOME_DIR/script\"").await.unwrap();
    assert_clean("the script", &std::fs::read_to_string(home.dir().join("script")).unwrap());

    let clock = Arc::new(RealClock);
    let runner = LocalRunner::new(db.clone(), home.clone(), clock.clone(), id);
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let forge = LocalForge::new(db, clock);
    let job = forge.queue(&run("7"), &["env".into()]).await.unwrap();
    let label = label("7");
    let over = eventually("the job's end", || async {
        forge.job(job).await.unwrap().filter(|job| job.state.is_over())
    });
    tokio::select! {
        why = runner.work(&label) => panic!("the runner died: {why}"),
        over = over => assert_eq!(over.exit_code, Some(0)),
    }
    let output = forge.output(job, 0).await.unwrap();
    let output: Vec<u8> = output.into_iter().flat_map(|chunk| chunk.bytes).collect();
    assert_clean("the job", &String::from_utf8(output).unwrap());
}
