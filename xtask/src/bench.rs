//! `cargo xtask bench`: measures provision and release on the local backend with default settings,
//! as a user sees them: whole processes, one command after the other.
//!
//! Figures depend on the computer, so compare only those of one run. One of them has a limit, that
//! also a slow computer must keep: a release of 400 machines takes at most 3 s.

mod agents;
pub(crate) mod aws;
mod figures;
pub(crate) mod github;
mod pool;

use std::path::Path;
use std::time::Duration;

use crate::console::{log, print};
use crate::step::Step;
use figures::Series;
use pool::{Others, Pool, Spent};

/// The number of machines in the headline figure.
const TEN: usize = 10;
/// Where the series of warm provisions of one machine is in the report.
const WARM_ONE: usize = 2;
/// Local machines boot at once unless `--local-boot-ms` delays them. Real machines take longer than
/// this; a longer delay would only make the benchmark longer.
const BOOT_MS: u32 = 2_000;

/// Builds, measures and prints the figures. Returns 0 unless a step failed or a limit was exceeded.
pub(crate) fn run(root: &Path) -> u8 {
    let exit_code = build().run(root);
    if exit_code != 0 {
        return exit_code;
    }
    match measure() {
        Ok(Measured { report, releases }) => {
            print(&report);
            check_limit(&releases).map_or(0, |exceeded| {
                log(&format!("error: {exceeded}"));
                1
            })
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

/// The figures, and those among them that have a limit.
struct Measured {
    report: String,
    /// The longest that a release took, by the number of machines.
    releases: Vec<(usize, Duration)>,
}

/// The most that a release of [`RELEASE_LIMIT_COUNT`] machines may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);
const RELEASE_LIMIT_COUNT: usize = 400;

/// Says which limit was exceeded, if one was.
fn check_limit(releases: &[(usize, Duration)]) -> Option<String> {
    let measured = releases.iter().find(|(count, _)| *count == RELEASE_LIMIT_COUNT);
    let Some((count, worst)) = measured else {
        return Some(format!("a release of {RELEASE_LIMIT_COUNT} was not measured"));
    };
    (*worst > RELEASE_LIMIT).then(|| {
        let (worst, limit) = (worst.as_millis(), RELEASE_LIMIT.as_millis());
        format!("a release of {count} took {worst} ms, more than its limit of {limit} ms")
    })
}

/// Measures everything, in the order of the report.
fn measure() -> Result<Measured, String> {
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
        "warm and release mostly wait: agents check the file for changes every 40 ms, and the control \
         plane polls for their signals every 50 ms"
            .to_owned(),
        "\"inside\" is the time that ondeck reports (timings.totalMs); \"process\" includes its start"
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
    let warm_one = &series[WARM_ONE];
    notes.extend([dead_candidate(warm_one)?, slow_registrations()?]);
    let releases = large_releases()?;
    notes.extend([growth(&releases), beside_other_processes()?]);
    let longest = releases.iter().map(|series| series.worst(|spent| spent.process));
    let longest = RELEASED.into_iter().zip(longest).collect();
    series.extend(releases);
    notes.push(format!("whole benchmark: {:.0} s", pool.age().as_secs_f64()));
    Ok(Measured { report: figures::report(&series, &notes), releases: longest })
}

/// Measures a claim whose first candidate died a moment ago, so that its heartbeat still looks fresh.
fn dead_candidate(warm: &Series) -> Result<String, String> {
    const ROUNDS: usize = 3;
    /// Until the pool's own registrations are known, provision claims a second machine after this.
    const DELAY: Duration = Duration::from_secs(4);
    log(&format!("claim whose first candidate is dead: {ROUNDS} rounds"));
    let mut slowest = Duration::ZERO;
    for _ in 0..ROUNDS {
        // A pool of its own: the delay follows the registrations that a pool has seen.
        let pool = Pool::open()?;
        pool.refresh(&[])?;
        let runs = [pool.next_run(), pool.next_run()];
        let first = pool.provision(&runs[0], 1, "cold", &[])?;
        pool.provision(&runs[1], 1, "cold", &[])?;
        for run in &runs {
            pool.release(run, 1, &[])?;
        }
        // The ticket that was sent first is received first.
        pool.kill(&first.instances)?;
        let claimed = pool.provision(&pool.next_run(), 1, "warm", &[])?;
        slowest = slowest.max(claimed.ready);
    }
    let warm = warm.median(|spent| spent.inside);
    let limit = DELAY + warm;
    Ok(format!(
        "claim whose first candidate is dead: ready after {:.0} ms at the latest of {ROUNDS}; the hedge \
         delay and a warm claim are {} ms, {:.2} times that",
        slowest.as_secs_f64() * 1000.0,
        limit.as_millis(),
        slowest.as_secs_f64() / limit.as_secs_f64(),
    ))
}

/// Makes 1,000 claims on machines whose registrations take between 0.2 and 6 s. Fails if a machine is
/// lost, since all of them are healthy.
fn slow_registrations() -> Result<String, String> {
    const CLAIMS: usize = 1_000;
    const COUNT: usize = 50;
    const MACHINES: usize = 60;
    log(&format!("{CLAIMS} claims with slow registration, {COUNT} at a time"));
    let pool = Pool::open()?;
    pool.refresh(&[])?;
    let run = pool.next_run();
    let mut machines = pool.provision(&run, MACHINES, "cold", &[])?.instances;
    pool.release(&run, MACHINES, &[])?;
    pool.refresh(&["--local-registration-ms=200-6000"])?;
    let (mut hedges, mut slowest) = (0, Duration::ZERO);
    for _ in 0..CLAIMS / COUNT {
        let run = pool.next_run();
        let done = pool.provision(&run, COUNT, "warm", &[])?;
        (hedges, slowest) = (hedges + done.hedges, slowest.max(done.ready));
        pool.release(&run, COUNT, &[])?;
    }
    pool.refresh(&["--local-registration-ms="])?;
    let run = pool.next_run();
    let mut left = pool.provision(&run, MACHINES, "warm", &[])?.instances;
    machines.sort_unstable();
    left.sort_unstable();
    if machines != left {
        return Err(format!("healthy machines were lost: {machines:?} became {left:?}"));
    }
    Ok(format!(
        "{CLAIMS} claims, registrations of 0.2 to 6 s: {hedges} hedged, the slowest ready after {:.1} s, \
         none of {MACHINES} machines lost",
        slowest.as_secs_f64(),
    ))
}

/// The numbers of machines that are released at once.
const RELEASED: [usize; 3] = [50, 200, 400];

/// Releases more and more machines at once, with default settings. Each number has a pool of its own.
fn large_releases() -> Result<Vec<Series>, String> {
    const ROUNDS: usize = 3;
    let mut all = Vec::new();
    for count in RELEASED {
        log(&format!("release of {count} at once: {ROUNDS} rounds"));
        let pool = Pool::open()?;
        pool.refresh(&[])?;
        let mut series = Series::new(&format!("release of {count} at once"));
        for round in 0..ROUNDS {
            let run = pool.next_run();
            let source = if round == 0 { "cold" } else { "warm" };
            pool.provision(&run, count, source, &[])?;
            series.push(pool.release(&run, count, &[])?);
        }
        all.push(series);
    }
    Ok(all)
}

/// How the time of a release grows with the number of machines. It should not grow faster.
fn growth(releases: &[Series]) -> String {
    let (few, many) = (&releases[0], &releases[releases.len() - 1]);
    let [one, other] = [few, many].map(|series| series.median(|spent| spent.process));
    format!(
        "{} / {}: {:.1} times the time for {:.1} times the machines",
        many.name,
        few.name,
        other.as_secs_f64() / one.as_secs_f64().max(0.001),
        RELEASED[2] as f64 / RELEASED[0] as f64,
    )
}

/// Releases machines on a computer with many other processes. Fails if a machine is lost, since all of
/// them are healthy.
fn beside_other_processes() -> Result<String, String> {
    const MACHINES: usize = 150;
    const OTHERS: usize = 1_500;
    const ROUNDS: usize = 3;
    log(&format!("release of {MACHINES} beside {OTHERS} other processes: {ROUNDS} rounds"));
    let (alone, beside) = (Pool::open()?, Pool::open()?);
    let mut medians = Vec::new();
    for (pool, others) in [(&alone, 0), (&beside, OTHERS)] {
        let _others = Others::start(others)?;
        pool.refresh(&[])?;
        let mut series = Series::new("");
        let mut machines = Vec::new();
        for round in 0..ROUNDS {
            let run = pool.next_run();
            let source = if round == 0 { "cold" } else { "warm" };
            let mut got = pool.provision(&run, MACHINES, source, &[])?.instances;
            got.sort_unstable();
            if round > 0 && got != machines {
                return Err(format!("healthy machines were lost: {machines:?} became {got:?}"));
            }
            machines = got;
            series.push(pool.release(&run, MACHINES, &[])?);
            pool.refresh(&[])?;
        }
        pool.empty(MACHINES)?;
        medians.push(series.median(|spent| spent.process).as_secs_f64());
    }
    Ok(format!(
        "release of {MACHINES}: {:.0} ms alone, {:.0} ms beside {OTHERS} other processes, {:.2} times \
         that; none lost",
        medians[0] * 1000.0,
        medians[1] * 1000.0,
        medians[1] / medians[0].max(0.001),
    ))
}

/// Provisions new machines in each round. None of them stays in the pool.
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

/// Provisions and releases the same machines in each round. They are in the pool at the end.
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

/// Agents poll for a run four times a second, and have just polled when a release returns. Pauses
/// of different length make the next run start at different moments between two polls.
#[expect(clippy::disallowed_methods, reason = "there is no event to wait for")]
fn pause(round: usize) {
    const POLL_MS: usize = 250;
    // Steps of 97 ms spread evenly over the interval after a few rounds.
    let millis = round * 97 % POLL_MS;
    std::thread::sleep(Duration::from_millis(millis as u64));
}

/// Searches past more and more unsuitable tickets: those of spot machines, for a run that asks for
/// on-demand ones. Launches fail meanwhile, so that only the search is measured.
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

/// Puts tickets into the pool by provisioning and releasing machines, and then kills the machines.
/// The search never reads the record of an unsuitable ticket, and hundreds of agents would
/// distort the figures.
fn leave_spot_tickets(pool: &Pool, count: usize) -> Result<(), String> {
    let run = pool.next_run();
    let spot = pool.provision(&run, count, "cold", &["--usage-class=spot"])?;
    pool.release(&run, count, &[])?;
    pool.kill(&spot.instances)
}

/// Measures the CPU time and memory of idle agents.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_of_400_has_a_limit() {
        let check = |millis| {
            let four_hundred = (RELEASED[2], Duration::from_millis(millis));
            check_limit(&[(50, Duration::from_secs(9)), four_hundred])
        };
        assert_eq!(check(3_000), None);
        let exceeded = "a release of 400 took 3001 ms, more than its limit of 3000 ms";
        assert_eq!(check(3_001).as_deref(), Some(exceeded));
        assert!(check_limit(&[]).is_some(), "not measured");
    }
}
