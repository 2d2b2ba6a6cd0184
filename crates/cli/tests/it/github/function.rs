//! Refresh as a function: the program as a custom runtime of Lambda, whose runtime API is played here.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use ondeck_standin::{
    APP_PRIVATE_KEY, APP_PUBLIC_KEY, AwsFault, AwsFaultRule, FunctionAnswer, Lambda, Permission,
    Service,
};
use serde_json::{Value, json};

use super::harness::{GitHubHarness, LIMIT, REPOSITORY, RUNNER, github, own_user};
use crate::aws::direct_requests::{create_secret, items, put_parameter};
use crate::aws::harness::{AwsHarness, LAUNCH, TIMES};
use crate::aws::permissions::policies;
use crate::harness::{Background, Driven, Receiver, program};

const MINUTE: Duration = Duration::from_secs(60);
const APP: &str = "12345";
/// What `ondeck init` writes, if it is asked for no image.
const IMAGE_PARAMETER: &str =
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id";

/// Where a test of this process keeps the key of the App.
enum Kept {
    Parameter,
    Secret,
}

/// A pool whose refresh is a function.
struct FunctionHarness {
    harness: GitHubHarness<AwsHarness>,
    lambda: Lambda,
    folder: tempfile::TempDir,
    source: String,
}

impl FunctionHarness {
    fn new(name: &str, kept: &Kept) -> FunctionHarness {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("/ondeck/{name}-{}", std::process::id());
        let (source, arn) = match kept {
            Kept::Parameter => {
                put_parameter(&name, APP_PRIVATE_KEY);
                let arn = format!("arn:aws:ssm:us-east-1:000000000000:parameter{name}");
                (format!("ssm:{name}"), arn)
            }
            Kept::Secret => {
                let arn = create_secret(&name, APP_PRIVATE_KEY);
                (format!("secretsmanager:{arn}"), arn)
            }
        };
        allow_key(folder.path(), &arn);
        let pool = AwsHarness::with_policies(folder.path().to_owned());
        let harness = GitHubHarness { pool, github: github() };
        let permissions = [Permission::Administration, Permission::ActionsRead];
        harness.github.add_app(APP, APP_PUBLIC_KEY, "acme", &permissions);
        let bootstrap = folder.path().join("bootstrap");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ondeck"), bootstrap).unwrap();
        FunctionHarness { harness, lambda: Lambda::start(), folder, source }
    }

    /// The program as Lambda starts it: its inputs are variables. It is given no setting.
    fn without_settings(&self) -> Command {
        let mut command = program(&self.folder.path().join("bootstrap"), &[]);
        command
            .envs(self.harness.pool.account())
            .env("AWS_REGION", "us-east-1")
            .env("AWS_LAMBDA_RUNTIME_API", self.lambda.address())
            .env("ONDECK_BACKEND", "aws")
            .env("ONDECK_GITHUB_URL", self.harness.github.url())
            .env("ONDECK_REPOSITORY", REPOSITORY)
            .env("ONDECK_GITHUB_APP_ID", APP)
            .env("ONDECK_GITHUB_APP_KEY_SOURCE", &self.source);
        command
    }

    /// The same, with the settings of a pool.
    fn bootstrap(&self) -> Command {
        let mut command = self.without_settings();
        command.env("ONDECK_RUNNER_USER", own_user()).env("ONDECK_MIN_IDLE", "large=1");
        for input in TIMES.iter().chain(&LAUNCH) {
            let (name, value) = input.trim_start_matches("--").split_once('=').unwrap();
            let name = name.replace('-', "_").to_ascii_uppercase();
            command.env(format!("ONDECK_{name}"), value);
        }
        command
    }

    /// Calls the function and waits for its answer.
    #[track_caller]
    fn call(&self, event: &Value, time: Duration) -> FunctionAnswer {
        let id = self.lambda.call(event, time);
        self.lambda.answer(&id, LIMIT).expect("the call is answered in time")
    }

    /// Calls it with the event of a schedule. It must succeed.
    #[track_caller]
    fn tick(&self) -> Value {
        match self.call(&json!({}), MINUTE) {
            FunctionAnswer::Answered(answer) => answer,
            failed @ FunctionAnswer::Failed(..) => panic!("{failed:?}"),
        }
    }

    /// Calls it until a machine that it has launched is in the pool.
    #[track_caller]
    fn until_warm(&self) {
        self.harness.until_runners("a runner of the minimum", |runners| !runners.is_empty());
        for _ in 0..40 {
            let answer = self.tick();
            if answer["warmed"] == 1 {
                return;
            }
            assert_eq!(answer["starting"], 1, "{answer}");
        }
        panic!("the machine is not in the pool");
    }
}

/// The project's policies, with those of the function for refresh.
fn allow_key(folder: &Path, arn: &str) {
    let added = ["function", "image-parameter", "notice-webhook"].map(|name| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../policies/optional/{name}.json"));
        let text = std::fs::read_to_string(file).unwrap();
        let text = text.replace("KEY-ARN", arn).replace("IMAGE-PARAMETER", IMAGE_PARAMETER);
        let text = text.replace("WEBHOOK-ARN", &webhook_arn());
        serde_json::from_str::<Value>(&text).unwrap()
    });
    policies(folder, |role, mut policy| {
        if role == "refresh" {
            let statements = policy["Statement"].as_array_mut().unwrap();
            let added = added.iter().flat_map(|it| it["Statement"].as_array().unwrap());
            statements.extend(added.cloned());
        }
        policy
    });
}

/// The parameter that keeps the address for notices in tests of this process.
fn webhook_name() -> String {
    format!("/ondeck/webhook-{}", std::process::id())
}

fn webhook_arn() -> String {
    format!("arn:aws:ssm:us-east-1:000000000000:parameter{}", webhook_name())
}

/// Every line of the key but its frame, which many texts may hold.
fn lines_of_key() -> impl Iterator<Item = &'static str> {
    APP_PRIVATE_KEY.lines().filter(|line| !line.starts_with("-----") && line.len() > 20)
}

#[test]
fn a_function_keeps_the_pool_over_several_calls() {
    let function = FunctionHarness::new("function", &Kept::Parameter);
    let pool = &function.harness.pool;
    let process = Background::start(&mut function.bootstrap());
    let first = function.tick();
    assert_eq!((&first["status"], &first["cause"]), (&json!("ok"), &json!("its schedule")));
    assert_eq!((&first["starting"], &first["warmed"]), (&json!(1), &json!(0)), "{first}");
    pool.until_machines(1);
    function.until_warm();
    assert_eq!((pool.tickets(), pool.machines().len()), (1, 1));

    let machine = pool.machines().into_iter().next().unwrap();
    let warning = json!({
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "detail": { "instance-id": machine, "instance-action": "terminate" },
    });
    let FunctionAnswer::Answered(answer) = function.call(&warning, MINUTE) else {
        panic!("a warning is no failure");
    };
    assert_eq!(answer["cause"], format!("a spot interruption: {machine}"));
    process.until_it_says(&format!("refreshes because of a spot interruption: {machine}"));

    let near = function.call(&json!({}), Duration::from_secs(15));
    let FunctionAnswer::Failed(kind, told) = near else { panic!("{near:?}") };
    assert_eq!(kind, "Refresh.unavailable");
    let message = told["errorMessage"].as_str().unwrap();
    assert!(message.starts_with("too little time for a refresh"), "{message}");

    let fault = AwsFaultRule::new(AwsFault::Status(500)).service(Service::DynamoDb);
    let fault = pool.control.inject(fault);
    let failed = function.call(&json!({}), MINUTE);
    let FunctionAnswer::Failed(kind, told) = failed else { panic!("{failed:?}") };
    assert_eq!((kind.as_str(), &told["errorType"]), ("Refresh.unavailable", &json!("unavailable")));
    assert!(told["errorMessage"].as_str().unwrap().contains("DynamoDB is out of reach"), "{told}");
    drop(fault);
    pool.control.clear_faults();
    assert_eq!(function.tick()["status"], "ok", "the next call is a new one");
    assert_eq!(pool.machines().len(), 1, "nothing was launched twice");

    process.signal(rustix::process::Signal::TERM);
    let done = process.finish();
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains(r#""RefreshSucceeded":1"#), "{}", done.stdout);
    assert!(done.stdout.contains(r#""RefreshSucceeded":0"#), "{}", done.stdout);
    let records: String = items(&pool.table()).iter().map(Value::to_string).collect();
    for line in lines_of_key() {
        for (what, text) in
            [("stdout", &done.stdout), ("stderr", &done.stderr), ("the table", &records)]
        {
            assert!(!text.contains(line), "the key of the App is in {what}");
        }
    }
    let denials = pool.denials();
    assert!(denials.is_empty(), "{denials:?}");
}

/// The workflow applies the file by the action, and nothing but the function refreshes.
#[test]
fn machines_of_a_function_get_the_agent_that_apply_was_given() {
    let function = FunctionHarness::new("applied", &Kept::Parameter);
    let pool = &function.harness.pool;
    let ec2 = pool.gateway.ec2();
    ec2.put_image_parameter(IMAGE_PARAMETER, "ami-0123456789abcdef0");
    let file = function.folder.path().join("ondeck.toml");
    let times: String = TIMES.iter().map(|it| it.replacen("--", "", 1) + "\n").collect();
    let settings = format!(
        "backend = \"aws\"\n[image]\nami = \"resolve:ssm:{IMAGE_PARAMETER}\"\n\
         [network]\nsubnet-ids = [\"subnet-0a\"]\nsecurity-group-ids = [\"sg-0123456789abcdef0\"]\n\
         [machines]\niam-instance-profile = \"ondeck-machine\"\nrunner-user = \"{}\"\n\
         [times]\n{times}",
        own_user()
    );
    let apply = |text: &str, agent: &[(&str, &str)]| {
        std::fs::write(&file, text).unwrap();
        let mut command = pool.command(&["apply", "--config", &file.display().to_string()]);
        command.env_remove("ONDECK_FORGE").envs(agent.iter().copied());
        Background::start(&mut command).finish().succeeded()
    };
    apply(&settings, &[]);
    let process = Background::start(&mut function.without_settings());
    assert_eq!(function.tick()["warnings"], 1);
    process.until_it_says("machines will not start: their image is a public one");

    let digests = ["ab".repeat(32), "cd".repeat(32)];
    let agent = [
        ("ONDECK_AGENT_URL", "https://example.com/x86-64"),
        ("ONDECK_AGENT_SHA256", &digests[0]),
        ("ONDECK_AGENT_URL_ARM64", "https://example.com/arm64"),
        ("ONDECK_AGENT_SHA256_ARM64", &digests[1]),
    ];
    apply(&format!("{settings}\n[[min-idle]]\nclass = \"large\"\ncount = 1\n"), &agent);
    assert_eq!(function.tick()["warnings"], 0);
    pool.until_machines(1);
    let [machine] = &ec2.machines()[..] else { panic!("one machine") };
    let script = String::from_utf8(machine.user_data.clone().unwrap()).unwrap();
    for (_, text) in agent {
        assert!(script.contains(&format!("='{text}'\n")), "{text}: {script}");
    }
    let denials = pool.denials();
    assert!(denials.is_empty(), "{denials:?}");
}

#[test]
fn a_function_tells_the_webhook_that_aws_keeps_what_it_finds() {
    const SECRET: &str = "T0-s3cret-of-the-address";
    let function = FunctionHarness::new("notices", &Kept::Parameter);
    let webhook = Receiver::start();
    put_parameter(&webhook_name(), &webhook.url(&format!("/{SECRET}")));
    let mut command = function.without_settings();
    command.env("ONDECK_RUNNER_USER", own_user()).env("ONDECK_ACTIONS_RUNNER_VERSION", RUNNER);
    for input in TIMES.iter().chain(&LAUNCH) {
        let (name, value) = input.trim_start_matches("--").split_once('=').unwrap();
        command.env(format!("ONDECK_{}", name.replace('-', "_").to_ascii_uppercase()), value);
    }
    let source = format!("ssm:{}", webhook_name());
    let process = Background::start(command.env("ONDECK_NOTICE_WEBHOOK_SOURCE", source));
    function.tick();
    assert_eq!(webhook.count(), 0, "nothing to tell");
    let soon = SystemTime::now() + 24 * 60 * MINUTE;
    function.harness.github.announce_end(RUNNER, None, Some(soon));
    assert_eq!(function.tick()["warnings"], 1);
    let told = webhook.take();
    let [told] = &told[..] else { panic!("{told:?}") };
    assert!(told.line.contains(SECRET), "{told:?}");
    let text = told.json()["text"].as_str().unwrap().to_owned();
    let deadline = "\n• new: actions-runner-version names a version that GitHub serves until ";
    assert!(text.starts_with("ondeck, pool ") && text.contains(deadline), "{text}");
    function.tick();
    assert_eq!(webhook.count(), 0, "once");
    process.signal(rustix::process::Signal::TERM);
    let done = process.finish();
    assert!(!(done.stdout + &done.stderr).contains(SECRET));
    let pool = &function.harness.pool;
    let records: String = items(&pool.table()).iter().map(Value::to_string).collect();
    assert!(records.contains("notices-told") && !records.contains(SECRET), "{records}");
    let denials = pool.denials();
    assert!(denials.is_empty(), "{denials:?}");
}

/// It is killed after its launch was answered, before the machine has a record.
#[test]
fn a_function_that_is_killed_in_mid_call_does_not_launch_twice() {
    let function = FunctionHarness::new("killed", &Kept::Secret);
    let pool = &function.harness.pool;
    let mut command = function.bootstrap();
    let process = Background::start(command.env("ONDECK_HOLD_BEFORE", "register"));
    let id = function.lambda.call(&json!({}), MINUTE);
    process.until_it_says("held before");
    assert_eq!(pool.machines().len(), 1);
    process.kill();
    assert_eq!(function.lambda.answer(&id, Duration::ZERO), None);
    let _again = Background::start(&mut function.bootstrap());
    let answer = function.tick();
    assert_eq!(answer["starting"], 0, "the lease of the killed one still holds: {answer}");
    assert!(pool.machines().len() <= 1, "{answer}");
}

#[test]
fn a_function_that_cannot_be_configured_says_so_at_its_start() {
    let function = FunctionHarness::new("unconfigured", &Kept::Parameter);
    let mut command = function.bootstrap();
    let done = Background::start(command.env("ONDECK_TIME_LIMIT_SEC", "soon")).finish();
    assert_eq!(done.code, 2, "{}", done.stderr);
    let told = function.lambda.init_error(LIMIT).unwrap();
    assert_eq!(told["errorType"], "invalid-input");
    assert!(told["errorMessage"].as_str().unwrap().contains("time-limit-sec"), "{told}");
}

/// The role may read one parameter and no other.
#[test]
fn a_key_that_the_role_may_not_read_fails_the_call() {
    let function = FunctionHarness::new("denied", &Kept::Parameter);
    let mut command = function.bootstrap();
    command.env("ONDECK_GITHUB_APP_KEY_SOURCE", "ssm:/another/key");
    let _process = Background::start(&mut command);
    let failed = function.call(&json!({}), MINUTE);
    let FunctionAnswer::Failed(_, told) = failed else { panic!("{failed:?}") };
    let message = told["errorMessage"].as_str().unwrap();
    assert!(message.contains("ssm:/another/key cannot be read"), "{message}");
    assert!(function.harness.pool.machines().is_empty());
}
