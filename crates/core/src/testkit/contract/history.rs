use std::collections::BTreeMap;

use super::arrange::{agreed, instance, ms, noon, run, spec};
use crate::lifecycle::{Instance, Pending, TypedState};
use crate::model::ids::RunId;
use crate::model::record::{MachineSpec, State};
use crate::model::settings::Settings;
use crate::model::summary::{CallOrigin, CallResult, ProvisionSummary};
use crate::model::timestamp::Timestamp;
use crate::modes::provision::ProvisionOptions;
use crate::ports::{Events, History, Store};

/// The contract of what has happened. `store` must be empty.
pub async fn history_suite<S: Store + History>(store: &S) {
    store.set_up().await.expect("the store can be set up");
    is_kept(store);
    nothing(store).await;
    events(store).await;
    summaries(store).await;
}

async fn nothing<S: Store + History>(store: &S) {
    let events = store.events_of_machine(&instance("i-none"), 9).await.expect("an answer");
    assert_eq!((events.rows.len(), events.is_partial), (0, false));
    let events = store.events_of_run(&run("none"), 9).await.expect("an answer");
    assert_eq!((events.rows.len(), events.is_partial), (0, false));
    assert_eq!(store.summaries_of_run(&run("none"), 9).await, Ok(Vec::new()));
    assert_eq!(store.recent_summaries(noon(), 9).await, Ok(Vec::new()));
}

/// What happens now is kept, and nothing is said to be kept for ever.
fn is_kept<S: History>(store: &S) {
    let since = store.kept_since(&Settings::default(), noon());
    assert!(since < noon() && noon().since(since) <= ms(30 * 86_400_000), "{since}");
}

async fn make<S: Store, T: TypedState>(store: &S, pending: Pending<T>) -> Instance<T> {
    let verdict = store.write(pending.change()).await.expect("the store answers");
    assert!(agreed(&verdict), "{verdict:?}");
    pending.settle(verdict).expect("agreed")
}

/// One machine serves two runs, another one the second of them only.
async fn events<S: Store + History>(store: &S) {
    let (first, second) = (run("history-1"), run("history-2"));
    let (id, other) = (instance("i-history"), instance("i-other"));
    let at = |second: u64| noon() + ms(second * 1_000);
    let hour = ms(3_600_000);
    let created = make(store, Instance::register(&id, &spec(), &first, at(0), hour)).await;
    let running = make(store, created.activate(at(1), hour)).await;
    let idle = make(store, running.release(at(2), hour).because("it is done")).await;
    let claimed = make(store, idle.claim(&second, at(3), hour)).await;
    let running = make(store, claimed.commit(at(4), hour)).await;
    let beside = make(store, Instance::register(&other, &spec(), &second, at(5), hour)).await;
    make(store, running.expire(at(6)).because("by hand")).await;
    drop(beside);
    store.finish().await.expect("everything is written");

    let life = store.events_of_machine(&id, 9).await.expect("an answer");
    let steps: Vec<(&str, Option<State>, State, Option<&RunId>)> = life
        .rows
        .iter()
        .map(|row| (row.transition.as_str(), row.from, row.to, row.run.as_ref()))
        .collect();
    let (one, two) = (Some(&first), Some(&second));
    let expected = [
        ("register", None, State::Created, one),
        ("activate", Some(State::Created), State::Running, one),
        ("release", Some(State::Running), State::Idle, None),
        ("claim", Some(State::Idle), State::Claimed, two),
        ("commit", Some(State::Claimed), State::Running, two),
        ("expire", Some(State::Running), State::Running, two),
    ];
    assert_eq!(steps, expected, "the life of a machine, oldest first");
    assert_eq!((life.rows[2].why.as_str(), life.rows[5].at), ("it is done", at(6)));
    assert!(!life.is_partial);

    let latest = store.events_of_machine(&id, 2).await.expect("an answer");
    let steps: Vec<&str> = latest.rows.iter().map(|row| row.transition.as_str()).collect();
    assert_eq!((steps, latest.is_partial), (vec!["commit", "expire"], true), "the latest");

    let told = MachineSpec::told_in(&life.rows[0].why);
    assert_eq!(told, Some(spec()), "the first event tells what it is");

    let between = |from, to, limit| store.events_between(at(from), at(to), limit);
    let steps = |events: &Events| -> Vec<String> {
        events.rows.iter().map(|row| row.transition.clone()).collect()
    };
    let all = between(0, 6, 99).await.expect("an answer");
    let names = ["register", "activate", "release", "claim", "commit", "register", "expire"];
    assert_eq!((steps(&all), all.is_partial), (names.map(str::to_owned).to_vec(), false));
    let some = between(2, 4, 99).await.expect("an answer");
    assert_eq!(steps(&some), ["release", "claim", "commit"], "both ends are included");
    let latest = between(0, 6, 2).await.expect("an answer");
    assert_eq!((steps(&latest), latest.is_partial), (steps(&all).split_off(5), true), "the latest");
    let exact = between(2, 4, 3).await.expect("an answer");
    assert!(!exact.is_partial, "there are no others");
    let days = store.events_between(at(0).before(ms(48 * 3_600_000)), at(2 * 86_400), 99).await;
    assert_eq!(days.expect("an answer"), all, "of several days");

    let of_first = store.events_of_run(&first, 9).await.expect("an answer");
    let steps: Vec<&str> = of_first.rows.iter().map(|row| row.transition.as_str()).collect();
    assert_eq!(steps, ["register", "activate", "release"], "also the one that took it away");
    let of_second = store.events_of_run(&second, 9).await.expect("an answer");
    let steps: Vec<(&str, &str)> =
        of_second.rows.iter().map(|row| (row.instance.as_str(), row.transition.as_str())).collect();
    let expected = [
        ("i-history", "claim"),
        ("i-history", "commit"),
        ("i-other", "register"),
        ("i-history", "expire"),
    ];
    assert_eq!(steps, expected);
    let latest = store.events_of_run(&second, 1).await.expect("an answer");
    assert_eq!((latest.rows.len(), latest.is_partial), (1, true));
    assert_eq!(latest.rows[0].transition, "expire");
}

fn summary(of: &str, began: Timestamp, count: u32) -> ProvisionSummary {
    ProvisionSummary {
        run: run(of),
        origin: CallOrigin::Run,
        began,
        at: began + ms(7),
        asked: ProvisionOptions { count, ..ProvisionOptions::default() },
        search: Default::default(),
        candidates: Vec::new(),
        hedges: Vec::new(),
        launches: Vec::new(),
        waits: Vec::new(),
        machines: Vec::new(),
        phases: Default::default(),
        ending: Default::default(),
        omitted: 0,
    }
}

async fn summaries<S: Store + History>(store: &S) {
    let day = ms(24 * 3_600_000);
    let at = |second: u64| noon() + ms(second * 1_000);
    let written = [
        summary("s-1", at(1), 1),
        summary("s-2", at(2), 2),
        summary("s-1", at(3), 3),
        summary("s-3", noon().before(day), 4),
        summary("s-3", noon().before(2 * day), 5),
    ];
    for each in &written {
        store.put_summary(each).await.expect("it can be written");
    }
    let mut ended = written[2].clone();
    ended.ending.result = CallResult::Failed;
    ended.ending.message = "é\n\"quoted\"".to_owned();
    store.put_summary(&ended).await.expect("it can be replaced");
    store.finish().await.expect("everything is written");

    let of_run = store.summaries_of_run(&run("s-1"), 9).await.expect("an answer");
    assert_eq!(of_run, [written[0].clone(), ended.clone()], "oldest first, and the last version");
    let latest = store.summaries_of_run(&run("s-1"), 1).await.expect("an answer");
    assert_eq!(latest, [ended], "the latest");
    let recent = store.recent_summaries(at(60), 9).await.expect("an answer");
    let counts: BTreeMap<u32, usize> =
        recent.iter().fold(BTreeMap::new(), |mut counts, summary| {
            *counts.entry(summary.asked.count).or_default() += 1;
            counts
        });
    assert_eq!(counts, [(1, 1), (2, 1), (3, 1), (4, 1)].into(), "of today and yesterday");
    let latest = store.recent_summaries(at(60), 2).await.expect("an answer");
    let mut counts: Vec<u32> = latest.iter().map(|summary| summary.asked.count).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3], "the latest");
    let later = store.recent_summaries(noon() + 9 * day, 9).await.expect("an answer");
    assert_eq!(later, Vec::new(), "no old ones");
}
