//! Set-up and checks, so that a machine with Rust and a C compiler needs to know nothing else.

mod args;
mod bench;
mod plan;
mod say;
mod step;
mod tool;

use std::process::ExitCode;

use args::Task;
use step::Report;

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
        Task::Test { nextest_args } => {
            let mut report = Report::default();
            // The many last, so that the output closes with their count.
            report.run(&plan::doctests(), &root);
            report.run_with(&tool::NEXTEST, &plan::nextest(&nextest_args), &root);
            report
        }
        Task::Check { fix } => {
            let mut report = Report::default();
            for step in plan::lints(fix) {
                report.run(&step, &root);
            }
            report.run_with(&tool::DENY, &plan::deny(), &root);
            report.note("advisories are not part of this: only the CI on GitHub checks them");
            report
        }
        Task::Bench => return ExitCode::from(bench::run(&root)),
        Task::Advisories => {
            let mut report = Report::default();
            report.run_with(&tool::DENY, &plan::advisories(), &root);
            report
        }
    };
    report.print();
    ExitCode::from(report.exit_code())
}
