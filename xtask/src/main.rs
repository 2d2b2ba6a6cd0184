//! Set-up and checks for a computer that has Rust and a C compiler.

mod args;
mod bench;
mod child;
mod cloud;
mod commands;
mod console;
mod cross;
mod demo;
mod docs;
mod emulators;
mod error;
mod files;
mod formula;
mod fuzz;
mod infra;
mod policies;
mod release;
mod sbom;
mod sim;
mod step;
mod tool;
mod vm;

use std::path::Path;
use std::process::ExitCode;

use args::Task;
use emulators::Emulators;
use error::TaskError;
use step::Report;

/// The exit code of a command line that cannot be read, as for `ondeck` itself.
const INVALID_INPUT: u8 = 2;

fn main() -> ExitCode {
    let task = match args::parse(std::env::args().skip(1)) {
        Ok(task) => task,
        Err(error) => {
            console::log(&format!("error: {error}"));
            console::log("hint: cargo xtask help");
            return ExitCode::from(INVALID_INPUT);
        }
    };
    let root = step::workspace_root();
    let report = match task {
        Task::Help => {
            console::print(args::HELP);
            return ExitCode::SUCCESS;
        }
        Task::Test { nextest_args } => test(&root, &nextest_args),
        Task::Emulators { command } => return ExitCode::from(emulators::run(&root, &command)),
        Task::Cloud { port, github } => return ExitCode::from(cloud::run(&root, port, github)),
        Task::Vm { inside } => return ExitCode::from(vm::run(&root, inside)),
        Task::Check { fix } => check(&root, fix),
        Task::Docs => docs::run(&root),
        Task::Infra => infra::run(&root),
        Task::Policies => return ExitCode::from(policies::run(&root)),
        Task::Release { part } => release::run(&root, &part),
        Task::Fuzz { target, seconds } => {
            return ExitCode::from(fuzz::run(&root, target.as_deref(), seconds));
        }
        Task::Bench => return ExitCode::from(bench::run(&root)),
        Task::BenchClaims => {
            return ExitCode::from(emulators::run(&root, &commands::bench_claims()));
        }
        Task::BenchDashboard => return ExitCode::from(commands::bench_dashboard().run(&root)),
        Task::BenchAws { rows } => return ExitCode::from(bench::aws::run(&root, &rows)),
        Task::BenchGitHub { rows } => return ExitCode::from(bench::github::run(&root, &rows)),
        Task::Sim { args } => return ExitCode::from(sim::run(&root, &args)),
        Task::PlantedBug { name } => return ExitCode::from(sim::find(&root, &name)),
        Task::PlantedBugs => return ExitCode::from(sim::find_all(&root)),
        Task::SimMutants { most_seeds } => {
            return ExitCode::from(sim::measure(&root, most_seeds));
        }
        Task::Mutants { mutants_args } => {
            let mut report = Report::default();
            let tools = [&tool::NEXTEST, &tool::MUTANTS];
            report.run_with(&tools, &commands::mutants(&mutants_args), &root);
            report.note("mutants that no test caught are in .tools/mutants.out/missed.txt");
            report
        }
        Task::Advisories => {
            let mut report = Report::default();
            report.run_with(&[&tool::DENY], &commands::advisories(), &root);
            report
        }
    };
    report.print();
    ExitCode::from(report.exit_code())
}

fn check(root: &Path, fix: bool) -> Report {
    let mut report = Report::default();
    for step in commands::lints(fix) {
        report.run(&step, root);
    }
    report.check("crates of the demo", || demo::check_crates(root));
    cross::check_macos(&mut report, root);
    docs::check_all(&mut report, root);
    report.check("workflows", || files::lint_workflows(root));
    report.check("schemas", || files::check_schemas(root));
    infra::check(&mut report, root, fix);
    report.run_with(&[&tool::DENY], &commands::deny(), root);
    report.check("bill of materials", || release::check_bill(root, &root.join("target/dist")));
    report.check("container", || release::lint_container(root));
    report.note("advisories are checked only by the CI on GitHub: cargo xtask advisories");
    report
}

fn test(root: &Path, nextest_args: &[String]) -> Report {
    let mut report = Report::default();
    let Some(mut emulators) = report.set_up("emulators", || Emulators::start(root)) else {
        report.note("no test was run, because the emulators did not start");
        return report;
    };
    // Nextest runs last, so that the output ends with its count.
    report.run(&commands::doctests().within(&emulators.environment), root);
    report.run(&commands::another_version(), root);
    let (variable, program) = commands::ANOTHER_VERSION;
    let program = root.join(program).display().to_string();
    let tests = commands::nextest(nextest_args).within(&emulators.environment);
    let tests = tests.with_env(variable, program);
    report.run_with(&[&tool::NEXTEST], &tests, root);
    emulators.ended().iter().for_each(TaskError::report);
    report
}
