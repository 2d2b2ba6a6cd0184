use super::*;
use crate::{Grid, generate, play_all};

const MINUTE: Duration = Duration::from_secs(60);

/// Runs of one machine that begin at these minutes and take so many.
fn history(runs: &[(u64, u64)]) -> History {
    let begin = Timestamp::parse("2026-11-02T08:00:00Z").unwrap();
    let run = |(start, minutes): &(u64, u64)| HistoryRun {
        start: begin + Duration::from_secs(60 * start),
        machines: 1,
        length: Duration::from_secs(60 * minutes),
        class: "large".parse().unwrap(),
    };
    History::new(runs.iter().map(run).collect()).unwrap()
}

fn point(idle_minutes: u64, min_idle: u32) -> Point {
    Point {
        idle_time: Duration::from_secs(60 * idle_minutes),
        min_idle,
        window: String::new(),
        usage: UsageClass::OnDemand,
    }
}

fn played(history: &History, point: &Point, model: Model) -> Measured {
    let measured = play(history, point, model, &Prices::built_in());
    assert_eq!((measured.failed, measured.failure.as_deref()), (0, None));
    measured
}

fn dollars(amount: f64) -> Money {
    Money::from_dollars(amount).unwrap()
}

#[test]
fn a_run_is_warm_if_a_machine_is_still_idle_from_the_one_before() {
    // The pauses between the runs are 3, 8 and 20 minutes.
    let history = history(&[(0, 10), (13, 10), (31, 10), (61, 10)]);
    for (idle, warm) in [(1, 0), (5, 1), (10, 2), (30, 3)] {
        let measured = played(&history, &point(idle, 0), Model::default());
        assert_eq!((measured.runs, measured.handed_over), (4, 4));
        assert_eq!((measured.warm, measured.launched), (warm, 4 - warm), "{idle} min");
    }
}

#[test]
fn a_warm_run_waits_for_a_registration_and_a_cold_one_for_a_boot() {
    let history = history(&[(0, 10), (13, 10)]);
    let model = Model::default();
    let measured = played(&history, &point(5, 0), model);
    let [warm, cold] = measured.waits[..] else { panic!("two runs") };
    let noticed = |waited: Duration, took: Duration| waited >= took && waited < took + took / 6;
    assert!(noticed(warm, model.registration), "{warm:?}");
    assert!(noticed(cold, model.boot), "{cold:?}");
    assert_eq!(measured.percentile(50), warm);
    assert_eq!(measured.percentile(95), cold);
    assert_eq!(measured.mean_wait(), (warm + cold) / 2);
    assert!((measured.warm_share() - 0.5).abs() < 1e-9);
}

#[test]
fn a_minimum_is_there_before_the_first_run_and_costs_all_the_time() {
    let history = history(&[(0, 60)]);
    let cold = played(&history, &point(5, 0), Model::default());
    let warm = played(&history, &point(5, 1), Model::default());
    assert_eq!((cold.warm, warm.warm), (0, 1));
    // An hour of c6i.large is $0.085. The planned end is an hour after the start, so that the wait is
    // not charged twice. The minimum is one more machine for that hour, from the next refresh on.
    assert_eq!(cold.cost, dollars(0.085));
    let extra = warm.cost - cold.cost;
    assert!(extra > dollars(0.07) && extra <= dollars(0.085), "{extra}");
}

#[test]
fn a_machine_is_paid_for_until_it_has_ended_itself_and_for_a_minute_at_least() {
    // The second run needs two machines at most; the first one is idle for 5 minutes, and a minute
    // later it ends itself, or a refresh has reaped it before.
    let history = history(&[(0, 10), (60, 10)]);
    let model = Model { refresh_every: 1_000 * MINUTE, ..Model::default() };
    let measured = played(&history, &point(5, 0), model);
    // The first lives for the boot, 10 min, 2 s, 5 min and 1 min, the second until the planned end.
    let seconds = 46.0 + 600.0 + 300.0 + 60.0 + 600.0;
    let expected = 0.085 * seconds / 3_600.0;
    let found = measured.cost.dollars();
    assert!((found - expected).abs() < 0.085 * 15.0 / 3_600.0, "{found} {expected}");
    assert!(measured.busy < measured.cost, "{measured:?}");
}

#[test]
fn spot_machines_cost_less_and_may_be_interrupted() {
    let runs: Vec<(u64, u64)> = (0..40).map(|n| (30 * n, 20)).collect();
    let history = history(&runs);
    let spot = Point { usage: UsageClass::Spot, ..point(15, 0) };
    let calm = played(&history, &spot, Model::default());
    let on_demand = played(&history, &point(15, 0), Model::default());
    let share = calm.cost.dollars() / on_demand.cost.dollars();
    assert!((share - Prices::built_in().spot_share).abs() < 1e-6, "{share}");
    assert_eq!((calm.repeated, &calm.waits), (0, &on_demand.waits));

    let rough = Model { interruptions: 400, ..Model::default() };
    let measured = played(&history, &spot, rough);
    assert!(measured.repeated > 0, "{measured:?}");
    assert_eq!(measured.runs, 40);
    assert!(measured.mean_wait() > calm.mean_wait());
    let unharmed = play(&history, &point(15, 0), rough, &Prices::built_in());
    assert_eq!(unharmed, on_demand, "on-demand machines are not interrupted");
}

#[test]
fn a_machine_without_a_price_is_not_counted_as_free() {
    let history = history(&[(0, 60)]);
    let table = r#"{"asOf": "2026-01-31", "source": "us", "region": "r", "spotShare": 0.5,
        "onDemand": {"a.b": 1}}"#;
    let prices = Prices::from_json(table).unwrap();
    let measured = play(&history, &point(5, 0), Model::default(), &prices);
    assert_eq!((measured.cost, measured.unpriced), (Money::ZERO, 60 * MINUTE));
}

#[test]
fn the_same_history_gives_the_same_figures_in_the_order_of_the_points() {
    let day: Vec<HistoryRun> = generate(7).runs().iter().take(60).cloned().collect();
    let history = History::new(day).unwrap();
    let grid = Grid {
        idle_times: vec![5 * MINUTE, 60 * MINUTE],
        min_idle: vec![0, 2],
        window: "Mon-Fri 07:00-18:00".to_owned(),
        usage: vec![UsageClass::OnDemand, UsageClass::Spot],
    };
    let model = Model { interruptions: 50, ..Model::default() };
    let points = grid.points();
    let told = Mutex::new(Vec::new());
    let note = |count| told.lock().unwrap().push(count);
    let first = play_all(&history, &points, model, &Prices::built_in(), &note);
    assert_eq!(points.len(), 8);
    assert_eq!(told.into_inner().unwrap().len(), 8);
    let again: Vec<Measured> =
        points.iter().map(|point| play(&history, point, model, &Prices::built_in())).collect();
    assert_eq!(first, again);
    assert!(first.iter().all(|it| it.failed == 0), "{:?}", first[0].failure);
    // Longer idle times and larger minimums spare waiting and cost money.
    assert!(first[1].warm > first[0].warm && first[1].cost > first[0].cost);
    assert!(first[3].warm > first[1].warm && first[3].cost > first[1].cost);
}
