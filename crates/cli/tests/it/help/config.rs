//! The help of the commands about the file of a pool.

use insta::assert_snapshot;

use super::help;

#[test]
fn the_help_of_config() {
    assert_snapshot!(help("config"), @"
    Check the file of a pool, or show where each setting comes from

    Usage: ondeck config [OPTIONS] <TASK>

    Arguments:
      <TASK>  What to do with the file [possible values: check, show, export]

    Options:
          --config <FILE>  File of the pool [default: ondeck.toml]
          --stored         Compare with what the pool has stored; for show
      -h, --help           Print help

    (options of every command)

    check says whether the file of the pool is valid, with the place of each error. show
    lists each setting, its value and where that comes from. Both read the file only; with
    --stored, show also asks the pool. export prints a file with the settings that the pool
    has stored, to begin with.

    Examples:
      ondeck config check
      ondeck config check --config pools/web.toml --json
      ondeck config show --stored
      ondeck config export --backend aws --pool acme/web > ondeck.toml
    ");
}

#[test]
fn the_help_of_apply() {
    assert_snapshot!(help("apply"), @"
    Store the file of a pool, for refresh to enforce

    Usage: ondeck apply [OPTIONS]

    Options:
          --config <FILE>  File of the pool [default: ondeck.toml]
          --dry-run        Show what would change or be deleted, and change nothing
          --clear          Remove the applied configuration, so that refresh takes settings from flags
                           again
      -h, --help           Print help

    AWS backend (stored beside the file, for a refresh that is given none of them):
          --agent-url <URL>           Where x86-64 machines download the agent: https://, or s3:// if
                                      the image has the AWS CLI; empty if the agent is on the image
          --agent-sha256 <HEX>        SHA-256 digest that the x86-64 agent must have
          --agent-url-arm64 <URL>     Where arm64 machines download the agent, as agent-url
          --agent-sha256-arm64 <HEX>  SHA-256 digest that the arm64 agent must have

    (options of every command)

    From the next refresh on, the stored settings are those of the file: one that the file
    does not state has its default, and flags of refresh that give settings are refused.
    In a workflow it works on the default branch only. It needs no token of GitHub.

    Examples:
      ondeck apply --dry-run
      ondeck apply
      ondeck apply --trust release
      ondeck apply --clear
    ");
}
