use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use ondeck_core::ports::Runner;
use ondeck_standin::emulators::Emulators;

use crate::runner::harness::{RunnerHarness, appears, label};

#[tokio::test]
async fn a_job_of_another_run_is_refused() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("4711")).await.unwrap();
    let ran = harness.github.join("ran");
    let done = harness.queue(&label("666"), 1, &format!("touch {}", ran.display()));
    appears(&done).await;
    assert_eq!(fs::read_to_string(&done).unwrap(), "Failed\n");
    assert!(!ran.exists());
    let said = fs::read_to_string(done.with_extension("log")).unwrap();
    assert!(
        said.contains("this machine was given to run 4711 and takes no job of another: 666"),
        "{said}"
    );
    let hint =
        "hint: use the output label of provision in runs-on, or an entry of its output labels";
    assert!(said.contains(hint), "{said}");
    assert_eq!(runner.account().await, "1 refused");
    appears(&harness.queue(&label("4711"), 2, "true")).await;
    let account = runner.account().await;
    assert!(account.starts_with("1 job, ") && account.ends_with(", 1 refused"), "{account}");
    runner.stop().await.unwrap();
}

#[tokio::test]
async fn the_operators_hooks_are_called_too() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let hook = |name: &str, text: &str| {
        let path = harness.folder.with_file_name(name);
        fs::write(&path, text).unwrap();
        path
    };
    let started = hook("started.sh", "echo their start for $GITHUB_RUN_ID\n");
    let completed = hook("completed.sh", "echo their end\n");
    let lines = format!(
        "TOOLS=/opt/tools\nACTIONS_RUNNER_HOOK_JOB_STARTED={}\nACTIONS_RUNNER_HOOK_JOB_COMPLETED={}\n",
        started.display(),
        completed.display()
    );
    fs::write(harness.image.join(".env"), lines).unwrap();
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    for (n, name) in [(1, "1"), (2, "2")] {
        let run = label(name);
        runner.register(&run).await.unwrap();
        let environment = fs::read_to_string(harness.root().join(".env")).unwrap();
        assert_eq!(environment, "TOOLS=/opt/tools\nLANG=C.UTF-8\n");
        let done = harness.queue(&run, n, "echo the job");
        appears(&done).await;
        let said = fs::read_to_string(done.with_extension("log")).unwrap();
        assert_eq!(said, format!("their start for {name}\nthe job\ntheir end\n"));
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
        runner.clean().await.unwrap();
    }
    // A failing hook fails the job, even if it is the operator's.
    fs::write(&started, "echo no; exit 3\n").unwrap();
    runner.register(&label("3")).await.unwrap();
    let done = harness.queue(&label("3"), 3, "echo the job");
    appears(&done).await;
    assert_eq!(fs::read_to_string(&done).unwrap(), "Failed\n");
    runner.stop().await.unwrap();
}

/// The runner also takes hooks in JavaScript, and no others.
#[tokio::test]
async fn an_operators_hook_is_run_by_its_kind() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let node = harness.image.join("externals/node20/bin/node");
    fs::create_dir_all(node.parent().unwrap()).unwrap();
    fs::write(&node, "#!/bin/sh\necho node runs \"${1##*/}\"\n").unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o755)).unwrap();
    for (name, result, said) in [
        ("hook.js", "Succeeded\n", "node runs hook.js\nthe job\n"),
        ("hook.py", "Failed\n", "the operator's hook does not end in .sh, .ps1 or .js: "),
    ] {
        let hook = harness.folder.with_file_name(name);
        fs::write(&hook, "").unwrap();
        let line = format!("ACTIONS_RUNNER_HOOK_JOB_STARTED={}\n", hook.display());
        fs::write(harness.image.join(".env"), line).unwrap();
        fs::remove_dir_all(&harness.folder).ok();
        let runner = harness.runner();
        runner.prepare().await.unwrap();
        let run = label(&name.replace('.', "-"));
        runner.register(&run).await.unwrap();
        let done = harness.queue(&run, 1, "echo the job");
        appears(&done).await;
        assert_eq!(fs::read_to_string(&done).unwrap(), result);
        let log = fs::read_to_string(done.with_extension("log")).unwrap();
        assert!(log.contains(said), "{log}");
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
    }
}

/// The runner does not quote the paths of hooks and scripts, so every job would fail without a reason.
#[tokio::test]
async fn a_folder_with_a_blank_is_refused() {
    let mut harness = RunnerHarness::with_image("2.336.0").await;
    harness.folder = harness.folder.with_file_name("on deck");
    let error = harness.runner().prepare().await.unwrap_err();
    assert!(error.starts_with("actions/runner cannot work in a path with blanks"), "{error}");
}

#[tokio::test]
async fn jobs_see_nothing_of_the_agents_environment() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let done = harness.queue(&label("1"), 1, "env | cut -d= -f1 | sort");
    appears(&done).await;
    let said = fs::read_to_string(done.with_extension("log")).unwrap();
    // Cargo and nextest set many variables for this process, which plays the agent.
    assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")));
    let of_the_runner = ["ACTIONS_RUNNER", "GITHUB_", "RUNNER_", "ONDECK_"];
    let plain = [
        "HOME", "PATH", "LANG", "USER", "LOGNAME", "SHELL", "TMPDIR", "PWD", "OLDPWD", "SHLVL",
        "_", "TZ",
    ];
    for name in said.lines() {
        let known = plain.contains(&name)
            || of_the_runner.iter().any(|start| name.starts_with(start))
            || name.to_lowercase().ends_with("_proxy")
            || name.starts_with("SSL_CERT_")
            || name == "DOCKER_HOST";
        assert!(known, "{name}");
    }
    assert!(said.contains("ONDECK_INSTANCE_ID\n") && said.contains("ONDECK_RUN_ID\n"));
    assert!(!said.contains("ACTIONS_RUNNER_INPUT"));
    runner.stop().await.unwrap();
}

/// The variables of a process cannot be changed safely while it runs, so this starts itself again.
#[tokio::test]
async fn jobs_use_the_proxies_of_the_agent() {
    const INSIDE: &str = "PROXY_TEST";
    let proxies = [("https_proxy", "http://proxy.invalid:3128"), ("NO_PROXY", ".example.com")];
    if std::env::var_os(INSIDE).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "runner::isolation::jobs_use_the_proxies_of_the_agent"])
            .env(INSIDE, "1")
            .envs(proxies)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        return;
    }
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let done = harness.queue(&label("1"), 1, "echo \"$https_proxy $NO_PROXY\"");
    appears(&done).await;
    let said = fs::read_to_string(done.with_extension("log")).unwrap();
    assert_eq!(said, "http://proxy.invalid:3128 .example.com\n");
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
}

#[test]
fn the_hooks_pass_shellcheck() {
    let hooks = concat!(env!("CARGO_MANIFEST_DIR"), "/src/runner/hooks");
    let mut command = Command::new(Emulators::running().shellcheck);
    for name in ["started.sh", "completed.sh", "operator.sh"] {
        command.arg(format!("{hooks}/{name}"));
    }
    let checked = command.output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[tokio::test]
async fn the_wrapper_starts_the_runner_and_so_its_jobs() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let wrapper = ["env", "STARTED_BY=wrapper"].map(std::ffi::OsString::from);
    let runner = harness.runner().with_wrapper(wrapper.to_vec());
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let done = harness.queue(&label("1"), 1, "echo \"$STARTED_BY\"");
    appears(&done).await;
    assert_eq!(fs::read_to_string(done.with_extension("log")).unwrap(), "wrapper\n");
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
}
