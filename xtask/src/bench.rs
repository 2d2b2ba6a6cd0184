//! `cargo xtask bench`: what things cost on the local backend with its default settings, as a
//! user would see it: whole processes, one command after the other.
//!
//! It measures and judges nothing. Figures depend on the computer; only those of one run can be
//! compared with each other.

mod agents;
mod figures;
mod pool;

use std::path::Path;
use std::time::Duration;

use crate::console::{log, print};
use crate::step::Step;
use figures::Series;
use pool::{Pool, Spent};

/// How many machines the headline is about.
const TEN: usize = 10;
/// A new machine of the local backend is there at once, unless told to take its time. This long
/// is short for a real one; longer would only make the benchmark longer.
const BOOT_MS: u32 = 2_000;

/// Builds and measures. The exit code is 0 if there are figures, whatever they are.
pub(crate) fn run(root: &Path) -> u8 {
    let exit_code = build().run(root);
    if exit_code != 0 {
        return exit_code;
    }
    match measure() {
        Ok(report) => {
            print(&report);
            0
        }
        Err(error) => {
            log(&format!("error: {error}"));
            1
        }
    }
}

fn build() -> Step {
    Step::new("build", "build --release --package ondeck")
}

/// Everything that is measured, in the order of the report.
fn measure() -> Result<String, String> {
    let pool = Pool::open()?;
    pool.refresh(&[])?;
    let mut series = vec![cold(&pool, "cold, 10 machines, booting in 0 ms", 5)?];
    pool.refresh(&[&format!("--local-boot-ms={BOOT_MS}")])?;
    let cold_booting = cold(&pool, &format!("cold, 10 machines, booting in {BOOT_MS} ms"), 3)?;
    pool.refresh(&["--local-boot-ms="])?;

    let (warm_ten, release_ten) = warm(&pool, TEN, 20)?;
    let mut notes = vec![
        times(&series[0], &warm_ten),
        times(&cold_booting, &warm_ten),
        idle(&pool, TEN)?,
        "warm and release are mostly waits: agents glance at the file every 40 ms, and the control \
         plane looks for their signals every 50 ms"
            .to_owned(),
        "\"inside\" is what ondeck says itself (timings.totalMs); \"process\" includes its start"
            .to_owned(),
    ];
    pool.empty(TEN)?;

    let (warm_one, release_one) = warm(&pool, 1, 10)?;
    pool.empty(1)?;
    let (warm_fifty, release_fifty) = warm(&pool, 50, 5)?;
    pool.empty(50)?;
    series.extend([cold_booting, warm_one, warm_ten, warm_fifty]);
    series.extend([release_one, release_ten, release_fifty]);
    series.extend(past_unsuitable(&pool)?);
    notes.push(format!("whole benchmark: {:.0} s", pool.age().as_secs_f64()));
    Ok(figures::report(&series, &notes))
}

/// New machines each time: none of them may wait in the pool afterwards.
fn cold(pool: &Pool, name: &str, rounds: usize) -> Result<Series, String> {
    log(&format!("{name}: {rounds} rounds"));
    let mut series = Series::new(name);
    for _ in 0..rounds {
        let run = pool.next_run();
        series.push(pool.provision(&run, TEN, "cold", &[])?);
        pool.release(&run, TEN, &["--idle-time-sec=0"])?;
    }
    Ok(series)
}

/// The same machines over and over: provisioned, released, provisioned. They are in the pool in
/// the end.
fn warm(pool: &Pool, count: usize, rounds: usize) -> Result<(Series, Series), String> {
    let machines = if count == 1 { "machine" } else { "machines" };
    log(&format!("warm, {count} {machines}: {rounds} rounds"));
    let mut provisions = Series::new(&format!("warm, {count} {machines}"));
    let mut releases = Series::new(&format!("release, {count} {machines}"));
    let mut run = pool.next_run();
    pool.provision(&run, count, "cold", &[])?;
    for round in 0..rounds {
        releases.push(pool.release(&run, count, &[])?);
        pause(round);
        run = pool.next_run();
        provisions.push(pool.provision(&run, count, "warm", &[])?);
    }
    pool.release(&run, count, &[])?;
    Ok((provisions, releases))
}

/// Agents look for a run four times a second, and have just looked when a release returns. The
/// next run comes at any moment between two looks, and not always at the worst.
#[expect(clippy::disallowed_methods, reason = "there is no event to wait for")]
fn pause(round: usize) {
    const BETWEEN_LOOKS_MS: usize = 250;
    // Steps of this width fall evenly, without many rounds being needed.
    let millis = round * 97 % BETWEEN_LOOKS_MS;
    std::thread::sleep(Duration::from_millis(millis as u64));
}

/// Looking through more and more tickets that will not do: those of spot machines, for a run
/// that wants none. Nothing can be launched meanwhile, so that only the search is measured.
fn past_unsuitable(pool: &Pool) -> Result<Vec<Series>, String> {
    const ROUNDS: usize = 20;
    let mut there = 0;
    let mut all = Vec::new();
    for wanted in [0, 10, 50, 200] {
        let name = format!("search past {wanted} unsuitable tickets");
        log(&format!("{name}: {ROUNDS} rounds"));
        while there < wanted {
            let more = (wanted - there).min(50);
            leave_spot_tickets(pool, more)?;
            there += more;
        }
        pool.refresh(&["--local-launch-failure=nothing is launched now"])?;
        let mut series = Series::new(&name);
        for _ in 0..ROUNDS {
            series.push(pool.search()?);
        }
        all.push(series);
        pool.refresh(&["--local-launch-failure="])?;
    }
    Ok(all)
}

/// Leaves tickets in the pool by the only way there is: machines that came back. The machines
/// themselves are then killed; a ticket that will not do is never followed up, and hundreds of
/// agents would be measured along.
fn leave_spot_tickets(pool: &Pool, count: usize) -> Result<(), String> {
    let run = pool.next_run();
    let spot = pool.provision(&run, count, "cold", &["--usage-class=spot"])?;
    pool.release(&run, count, &[])?;
    pool.kill(&spot.instances)
}

/// What machines cost that wait in the pool.
fn idle(pool: &Pool, count: usize) -> Result<String, String> {
    log("idle agents: 5 s");
    let agents = pool.agents()?;
    if agents.len() != count {
        return Err(format!("not {count} agents but {}", agents.len()));
    }
    let cost = agents::watch(&agents)?;
    Ok(format!(
        "idle agent: {:.2} % of a core, {:.1} MB resident (mean of {count} over {:.1} s)",
        cost.cpu_percent,
        cost.resident_mb,
        cost.watched.as_secs_f64()
    ))
}

fn times(cold: &Series, warm: &Series) -> String {
    let ratio = |of: fn(&Spent) -> Duration| {
        let (cold, warm) = (cold.median(of), warm.median(of));
        cold.as_secs_f64() / warm.as_secs_f64().max(0.001)
    };
    let (process, inside) = (ratio(|spent| spent.process), ratio(|spent| spent.inside));
    format!("{} / {}: {process:.1}, inside {inside:.1}", cold.name, warm.name)
}
