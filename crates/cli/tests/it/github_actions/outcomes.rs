//! Every outcome has a result and a summary, and outputs that cannot be written are not lost in
//! silence.

use insta::assert_snapshot;
use rustix::process::Signal;

use super::WorkflowStep;
use crate::harness::{AtTerminal, Background, Driven, Home, signal, until};

#[test]
fn missing_or_unwritable_files_change_nothing_else() {
    let home = Home::with(&[]);
    let step = WorkflowStep::of(&home);
    let mut elsewhere = step.command(&["provision", "--run-id", "7"]);
    let done = Background::start(elsewhere.env("GITHUB_ACTIONS", "")).finish().succeeded();
    assert!(!step.outputs.exists() && !step.summary.exists(), "not in a workflow");
    assert!(!done.stderr.contains("::"), "{}", done.stderr);

    let mut unset = step.command(&["provision", "--run-id", "7"]);
    unset.env("GITHUB_OUTPUT", "").env_remove("GITHUB_STEP_SUMMARY");
    Background::start(&mut unset).finish().succeeded();
    assert!(!step.outputs.exists() && !step.summary.exists(), "not given");

    let nowhere = home.outside().join("no/such/folder/file");
    let mut denied = step.command(&["provision", "--run-id", "7"]);
    let done = Background::start(denied.env("GITHUB_STEP_SUMMARY", &nowhere)).finish().succeeded();
    let warnings = done.stderr.lines().filter(|line| line.starts_with("::warning"));
    assert_snapshot!(warnings.collect::<Vec<_>>().join("\n"), @"::warning title=ondeck::the job summary cannot be written: No such file or directory (os error 2)");
}

#[test]
fn outputs_that_cannot_be_written_fail_the_step() {
    let home = Home::with(&[]);
    let nowhere = home.outside().join("no/such/folder/file").display().to_string();
    for (file, problem) in [
        (nowhere.as_str(), "No such file or directory (os error 2)"),
        ("/dev/full", "No space left on device (os error 28)"),
        ("/", "Is a directory (os error 21)"),
    ] {
        for arguments in [
            &["provision", "--run-id=7"][..],
            &["refresh"],
            &["release", "--run-id=7"],
            &["release", "--run-id=none"],
        ] {
            let step = WorkflowStep::of(&home);
            let mut command = step.command(arguments);
            let done = Background::start(command.env("GITHUB_OUTPUT", file)).finish().exited(11);
            let error = done.stderr.lines().last().unwrap();
            let expected = format!(
                "::error title=ondeck {}%3A unreported::step outputs cannot be written: {file}: \
                 {problem}%0Ahint: GITHUB_OUTPUT must name a file that the step can write",
                arguments[0]
            );
            assert_eq!(error, expected, "{arguments:?}");
            assert!(step.summary().starts_with("### ondeck "), "{arguments:?}");
        }
    }
    // The failure of the command itself decides the exit code.
    let step = WorkflowStep::of(&home);
    let mut command = step.command(&["provision", "--run-id=7", "--resource-class=huge"]);
    let done = Background::start(command.env("GITHUB_OUTPUT", "/dev/full")).finish().exited(2);
    let errors = done.stderr.lines().filter(|line| line.starts_with("::error ")).count();
    assert_eq!(errors, 2, "{}", done.stderr);
}

#[test]
fn machines_that_do_not_respond_do_not_excuse_lost_outputs() {
    let home = Home::with(&["--release-timeout-sec=0.5", "--self-termination-grace-sec=60"]);
    home.provision("7", 1).succeeded();
    home.agents().into_values().for_each(|pid| signal(pid, Signal::STOP));
    let mut release = WorkflowStep::of(&home).command(&["release", "--run-id", "7"]);
    release.env("ONDECK_ACTION", "true").env("GITHUB_OUTPUT", "/dev/full");
    Background::start(&mut release).finish().exited(11);
}

#[test]
fn a_command_line_that_is_refused_has_a_result_and_a_summary() {
    let home = Home::bare();
    let refused = |arguments: &[&str], action: &str| {
        let step = WorkflowStep::of(&home);
        let mut command = step.command(arguments);
        let done = Background::start(command.env("ONDECK_ACTION", action)).finish().exited(2);
        assert_eq!(done.stdout, "");
        (done.stderr, step)
    };
    let (log, step) = refused(&["provision", "--run-id=1", "--instance-count=two"], "true");
    assert_snapshot!(log, @"::error title=ondeck%3A invalid-input::invalid value 'two' for '--instance-count <COUNT>': invalid digit found in string%0Ahint: ondeck provision --help shows what it takes");
    assert_snapshot!(step.outputs(), @"result.status=failed");
    assert_snapshot!(step.summary(), @"
    ### ondeck failed: invalid input

    > invalid value 'two' for '--instance-count &lt;COUNT&gt;': invalid digit found in string
    >
    > **hint:** ondeck provision --help shows what it takes

    Exit code 2: invalid input.
    ");
    for (arguments, action, message) in [
        (&[""][..], "true", "no mode given%0Ahint: use one of refresh, provision, release, apply"),
        (&[], "true", "no mode given%0Ahint: use one of refresh, provision, release, apply"),
        (&["demolish"], "true", "no such mode: \"demolish\"%0Ahint: use one of refresh, prov"),
        (&["-vv"], "", "no command given%0Ahint: use one of refresh, provision, release, run, "),
        (&["demolish"], "", "no such command: \"demolish\"%0Ahint: use one of refresh, provis"),
        (&["release", "--surplus"], "true", "unexpected argument '--surplus' found%0Ahint: ondeck"),
    ] {
        let (log, step) = refused(arguments, action);
        let expected = format!("::error title=ondeck%3A invalid-input::{message}");
        assert!(log.starts_with(&expected), "{arguments:?}: {log}");
        assert_eq!(step.outputs(), "result.status=failed", "{arguments:?}");
        assert!(step.summary().starts_with("### ondeck failed: invalid input\n"), "{arguments:?}");
    }
}

#[test]
fn every_mode_has_a_result_and_a_summary_for_every_failure() {
    let home = Home::bare();
    let settings = Home::with(&[]);
    let sql = "UPDATE settings SET value = 'soon' WHERE name = 'idle-time-sec'";
    settings.file().execute(sql, []).unwrap();
    let broken = Home::bare();
    std::fs::create_dir(broken.dir()).unwrap();
    std::fs::write(broken.dir().join("ondeck.db"), "no database ".repeat(1000)).unwrap();
    let at_once = "--registration-token-patience-sec=0";
    for (home, arguments, code) in [
        (&home, &["provision", "--run-id=1", at_once][..], 3),
        (&home, &["provision"], 2),
        (&home, &["provision", "--run-id=1", "--max-runtime-min=x"], 2),
        (&home, &["release", "--run-id=1"], 3),
        (&home, &["release"], 2),
        (&home, &["refresh", "--min-idle=huge=1"], 2),
        (&settings, &["provision", "--run-id=1"], 2),
        (&settings, &["release", "--run-id=1"], 2),
        (&broken, &["refresh"], 6),
        (&broken, &["provision", "--run-id=1"], 6),
        (&broken, &["release", "--run-id=1"], 6),
    ] {
        let step = WorkflowStep::of(home);
        step.run(arguments).exited(code);
        assert!(step.outputs().ends_with("result.status=failed"), "{arguments:?}");
        let summary = step.summary();
        assert!(summary.contains(&format!("Exit code {code}: ")), "{arguments:?}: {summary}");
    }
}

#[test]
fn a_release_and_a_refresh_that_are_stopped_have_a_result_and_a_summary() {
    let home = Home::with(&[]);
    let ids = home.provision("7", 1).succeeded().ids();
    signal(home.agents()[&ids[0]], Signal::STOP);
    let step = WorkflowStep::of(&home);
    let release = Background::start(&mut step.command(&["release", "--run-id=7"]));
    release.until_it_says("waiting for machines to deregister");
    until("the machine is let go", || home.standings() == ["idle"]);
    release.signal(Signal::INT);
    release.finish().exited(130);
    assert_eq!(step.outputs(), "result.status=failed");
    assert!(step.summary().contains("Exit code 130: "), "{}", step.summary());

    let step = WorkflowStep::of(&home);
    let warming = ["refresh", "--local-boot-ms=60000", "--min-idle=large=2"];
    let refresh = Background::start(&mut step.command(&warming));
    until("machines are being warmed up", || home.standings().len() > 1);
    refresh.signal(Signal::TERM);
    refresh.finish().exited(143);
    assert_eq!(step.outputs(), "result.status=failed");
    assert!(step.summary().contains("told to terminate"), "{}", step.summary());
}

#[test]
fn an_annotation_begins_its_line_on_a_terminal_too() {
    let home = Home::with(&["--local-boot-ms=60000", "--validation-timeout-sec=3"]);
    let step = WorkflowStep::of(&home);
    let mut command = step.command(&["provision", "--run-id=7"]);
    command.env("TERM", "xterm-256color");
    let shown = AtTerminal::start(command).finish();
    let error = shown.lines().find(|line| line.contains("::error "));
    assert!(error.is_some_and(|line| line.starts_with("::error ")), "{shown:?}");
    assert!(!shown.contains('\x1b'), "no spinner and no colour: {shown:?}");
    assert!(shown.contains("provision: waiting for new machines to become ready ("), "{shown:?}");
}
