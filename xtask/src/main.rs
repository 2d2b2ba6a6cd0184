//! Set-up and checks, so that a machine with Rust and a C compiler needs to know nothing else.

mod args;
mod bench;
mod cloud;
mod emulators;
mod fuzz;
mod leash;
mod plan;
mod say;
mod sim;
mod step;
mod tool;
mod trouble;

use std::path::Path;
use std::process::ExitCode;

use args::Task;
use emulators::Emulators;
use step::Report;
use trouble::Trouble;

/// The exit code of a command line that cannot be read, as for `ondeck` itself.
const INVALID_INPUT: u8 = 2;

fn main() -> ExitCode {
    let task = match args::parse(std::env::args().skip(1)) {
        Ok(task) => task,
        Err(error) => {
            say::say(&format!("error: {error}"));
            say::say("hint: cargo xtask help");
            return ExitCode::from(INVALID_INPUT);
        }
    };
    let root = step::workspace_root();
    let report = match task {
        Task::Help => {
            say::answer(args::HELP);
            return ExitCode::SUCCESS;
        }
        Task::Test { nextest_args } => test(&root, &nextest_args),
        Task::Emulators { command } => return ExitCode::from(emulators::run(&root, &command)),
        Task::Cloud { port } => return ExitCode::from(cloud::run(&root, port)),
        Task::Check { fix } => {
            let mut report = Report::default();
            for step in plan::lints(fix) {
                report.run(&step, &root);
            }
            report.run_with(&[&tool::DENY], &plan::deny(), &root);
            report.note("advisories are not part of this: only the CI on GitHub checks them");
            report
        }
        Task::Fuzz { target, seconds } => {
            return ExitCode::from(fuzz::run(&root, target.as_deref(), seconds));
        }
        Task::Bench => return ExitCode::from(bench::run(&root)),
        Task::BenchAws => return ExitCode::from(emulators::run(&root, &plan::bench_aws())),
        Task::Sim { args } => return ExitCode::from(sim::run(&root, &args)),
        Task::Plant { name } => return ExitCode::from(sim::find(&root, &name)),
        Task::Plants => return ExitCode::from(sim::find_all(&root)),
        Task::Mutants { mutants_args } => {
            let mut report = Report::default();
            let tools = [&tool::NEXTEST, &tool::MUTANTS];
            report.run_with(&tools, &plan::mutants(&mutants_args), &root);
            report.note("the survivors are in .tools/mutants.out/missed.txt");
            report
        }
        Task::Advisories => {
            let mut report = Report::default();
            report.run_with(&[&tool::DENY], &plan::advisories(), &root);
            report
        }
    };
    report.print();
    ExitCode::from(report.exit_code())
}

fn test(root: &Path, nextest_args: &[String]) -> Report {
    let mut report = Report::default();
    let Some(mut emulators) = report.set_up("emulators", || Emulators::start(root)) else {
        report.note("no test was run, for want of emulators");
        return report;
    };
    // The many last, so that the output closes with their count.
    report.run(&plan::doctests().within(&emulators.environment), root);
    let tests = plan::nextest(nextest_args).within(&emulators.environment);
    report.run_with(&[&tool::NEXTEST], &tests, root);
    emulators.ended().iter().for_each(Trouble::say);
    report
}
