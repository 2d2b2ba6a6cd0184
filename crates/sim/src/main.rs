//! The simulation's command line; `cargo xtask sim` is the way to it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ondeck_sim::{
    CallFault, Case, Plan, SCENES, Scenario, Scene, broken, explore, grouped, play, shrink, sweep,
    walk, worth_seeing,
};

const HELP: &str = "\
Usage: cargo xtask sim [OPTIONS]
  --seeds N       plays N histories (default 1000)
  --from SEED     the first of them (default 0)
  --fresh N       and N more, the first of them by the current time;
                  with --seeds 0 only these
  --exhaustive    explores every history of the small scenes instead
  --scene NAME    only of this one
  --brief         only of those that take seconds
  --seed SEED     plays one history, shrinks it if it breaks a promise, and shows it
  --sweep         harms every call of each scenario's process in every way
  --scenario NAME, --call N, --harm KIND   of these only the ones that are named;
                  call 0 shows the scenario without a harm
";

/// A promise was broken.
const BROKEN: u8 = 1;
/// The command line makes no sense.
const INVALID: u8 = 2;
/// Past this many states a scene is given up: it would not fit into memory.
const MOST_STATES: u64 = 50_000_000;

#[derive(Default)]
struct Options {
    seeds: u64,
    from: u64,
    fresh: u64,
    one: Option<u64>,
    exhaustive: bool,
    brief: bool,
    scene: Option<String>,
    sweep: bool,
    scenario: Option<&'static str>,
    call: Option<u64>,
    harm: Option<CallFault>,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("error: {problem}\nhint: cargo xtask sim --help");
            return ExitCode::from(INVALID);
        }
    };
    if let Some(seed) = options.one {
        return replay(seed);
    }
    if options.exhaustive {
        return exhaust(options.scene.as_deref(), options.brief);
    }
    if options.sweep {
        return sweep_through(&options);
    }
    let mut sound = options.seeds == 0 || search(options.from, options.seeds);
    if sound && options.fresh > 0 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // Far from the seeds that people count from 0.
        let from = (1 << 40) + since.map_or(0, |since| since.as_secs() * 1000);
        sound = search(from, options.fresh);
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { seeds: 1000, ..Options::default() };
    while let Some(arg) = args.next() {
        let mut word = || args.next().ok_or_else(|| format!("a value must follow: {arg}"));
        let mut number = || {
            let value = word()?;
            value.parse().map_err(|_| format!("{arg} is not a number: {value}"))
        };
        match arg.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--fresh" => options.fresh = number()?,
            "--seed" => options.one = Some(number()?),
            "--exhaustive" => options.exhaustive = true,
            "--brief" => {
                options.exhaustive = true;
                options.brief = true;
            }
            "--scene" => {
                options.exhaustive = true;
                options.scene = Some(word()?);
            }
            "--sweep" => options.sweep = true,
            "--call" => options.call = Some(number()?),
            "--scenario" => options.scenario = Some(scenario(&word()?)?),
            "--harm" => options.harm = Some(harm(&word()?)?),
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option: {arg}")),
        }
    }
    Ok(Some(options))
}

fn search(from: u64, count: u64) -> bool {
    let started = Instant::now();
    println!("playing the histories of seeds {from} to {}", from + count - 1);
    let walk = walk(from..from + count, 5);
    print!("{}", walk.sum.shown());
    println!("  {:<16} {:.1} s", "took", started.elapsed().as_secs_f64());
    println!("  {:<16} {}", "broken promises", grouped(walk.broken.len() as u64));
    if let Some((seed, history)) = walk.broken.first() {
        show(*seed, history);
    }
    for (seed, history) in walk.broken.iter().skip(1) {
        let words = history.violation.as_ref().map(ToString::to_string).unwrap_or_default();
        println!("seed {seed} breaks one too: {words}");
    }
    walk.broken.is_empty()
}

fn show(seed: u64, history: &ondeck_sim::History) {
    let Some(violation) = &history.violation else { return };
    let shrunk = shrink(&Plan::of(seed), violation.promise);
    print!("\n{}", broken(seed, history, &shrunk));
}

fn replay(seed: u64) -> ExitCode {
    let history = play(&Plan::of(seed), true);
    if history.violation.is_some() {
        show(seed, &history);
        return ExitCode::from(BROKEN);
    }
    for line in worth_seeing(&history.journal) {
        println!("{line}");
    }
    println!("{} events, no promise broken", grouped(history.steps));
    ExitCode::SUCCESS
}

/// Explores the scenes, as many at once as there are processors.
fn exhaust(only: Option<&str>, brief: bool) -> ExitCode {
    let is_wanted =
        |scene: &&Scene| only.is_none_or(|only| only == scene.name) && (scene.brief || !brief);
    let scenes: Vec<&Scene> = SCENES.iter().filter(is_wanted).collect();
    if scenes.is_empty() {
        let names: Vec<&str> = SCENES.iter().map(|scene| scene.name).collect();
        eprintln!("error: unknown scene: {}", only.unwrap_or_default());
        eprintln!("hint: scenes are {}", names.join(" "));
        return ExitCode::from(INVALID);
    }
    println!(
        "{:<8} {:>11} {:>13} {:>10} {:>8} {:>8}  cast, and what may happen",
        "scene", "states", "steps", "ends", "longest", "took"
    );
    let next = AtomicUsize::new(0);
    let sound = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(scene) = scenes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !show_scene(scene) {
                        sound.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    if sound.into_inner() { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) }
}

fn show_scene(scene: &Scene) -> bool {
    let started = Instant::now();
    let found = explore(scene, MOST_STATES);
    let mut text = format!(
        "{:<8} {:>11} {:>13} {:>10} {:>8} {:>6.1} s  {}; {}\n",
        scene.name,
        grouped(found.states),
        grouped(found.steps),
        grouped(found.ends),
        found.longest,
        started.elapsed().as_secs_f64(),
        scene.cast,
        scene.may_happen()
    );
    if let Some((violation, journal)) = &found.broken {
        let lines = worth_seeing(journal).join("\n");
        text += &format!("{lines}\n=> {violation}\n");
        text += &format!("replay it with: cargo xtask sim --exhaustive --scene {}\n", scene.name);
    } else if !found.complete {
        text += &format!("{} is too large to be explored completely\n", scene.name);
    }
    print!("{text}");
    found.complete
}

fn scenario(name: &str) -> Result<&'static str, String> {
    let names: Vec<&str> = Scenario::all().iter().map(|scenario| scenario.name).collect();
    let known = names.iter().find(|known| **known == name).copied();
    known.ok_or_else(|| format!("none of {}: {name}", names.join(", ")))
}

fn harm(name: &str) -> Result<CallFault, String> {
    let names = CallFault::ALL.map(CallFault::as_str);
    let known = CallFault::ALL.into_iter().find(|harm| harm.as_str() == name);
    known.ok_or_else(|| format!("none of {}: {name}", names.join(", ")))
}

fn sweep_through(options: &Options) -> ExitCode {
    if let (Some(name), Some(0)) = (options.scenario, options.call) {
        let unharmed = Case { scenario: name, call: 0, harm: CallFault::FailOnce };
        print!("{}", unharmed.replay().map(|history| unharmed.told(&history)).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    let started = Instant::now();
    let wanted = |case: &Case| {
        options.scenario.is_none_or(|name| case.scenario == name)
            && options.call.is_none_or(|call| u64::from(case.call) == call)
            && options.harm.is_none_or(|harm| case.harm == harm)
    };
    let swept = sweep(wanted);
    print!("{}", swept.shown());
    println!("took {:.1} s", started.elapsed().as_secs_f64());
    for (case, violation) in &swept.broken {
        println!("{case:?} breaks a promise: {violation}");
    }
    // A case that was asked for alone is shown even if it broke nothing.
    let shown = swept.broken.first().map(|(case, _)| *case).or(swept.only);
    if let Some(case) = shown
        && let Some(history) = case.replay()
    {
        print!("\n{}", case.told(&history));
    }
    if swept.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) }
}
