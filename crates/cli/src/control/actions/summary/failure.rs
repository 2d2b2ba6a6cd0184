//! What went wrong, what to do about it, and what the exit code means.

use ondeck_core::model::failure::{Failure, FailureKind};

use super::markdown::plain;

/// All that there is to say where a mode came to nothing.
pub(super) fn section(mode: &str, failure: &Failure) -> String {
    let (meaning, reason) = (meaning(failure.kind), reason(failure));
    format!("### ondeck {mode} failed: {meaning}\n\n{reason}\n{}", exit_code(failure))
}

/// The reason and the hint.
pub(super) fn reason(failure: &Failure) -> String {
    let mut text = format!("> {}\n", plain(&failure.message));
    if !failure.hint.is_empty() {
        text += &format!(">\n> **hint:** {}\n", plain(&failure.hint));
    }
    text
}

/// What the program ends with.
pub(super) fn exit_code(failure: &Failure) -> String {
    format!("Exit code {} means: {}.\n", failure.kind.exit_code(), meaning(failure.kind))
}

/// What a kind of failure is, in a few words.
pub(super) fn meaning(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::InvalidInput => "invalid input",
        FailureKind::NotSetUp => "not set up, refresh must run first",
        FailureKind::NoCapacity => "no capacity",
        FailureKind::NotReady => "machines did not get ready",
        FailureKind::Unavailable => "store, queue or compute out of reach",
        FailureKind::Busy => "compute too busy",
        FailureKind::Forge => "GitHub refused, or the token is bad",
        FailureKind::PartlyReleased => "released, but some machines did not answer",
        FailureKind::Unexpected => "unexpected, everything was dumped",
        FailureKind::Interrupted => "interrupted, and cleared up",
        FailureKind::Stopped => "terminated, and cleared up",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_failure_has_a_meaning() {
        let sections = FailureKind::ALL.map(|kind| {
            let failure = Failure::new(kind, "it went <wrong>").hint("try `again`");
            section("refresh", &failure)
        });
        let heads = sections.iter().map(|section| {
            let meaning = section.lines().last().unwrap();
            format!("{} / {meaning}", section.lines().next().unwrap())
        });
        insta::assert_snapshot!(heads.collect::<Vec<_>>().join("\n"), @"
        ### ondeck refresh failed: invalid input / Exit code 2 means: invalid input.
        ### ondeck refresh failed: not set up, refresh must run first / Exit code 3 means: not set up, refresh must run first.
        ### ondeck refresh failed: no capacity / Exit code 4 means: no capacity.
        ### ondeck refresh failed: machines did not get ready / Exit code 5 means: machines did not get ready.
        ### ondeck refresh failed: store, queue or compute out of reach / Exit code 6 means: store, queue or compute out of reach.
        ### ondeck refresh failed: compute too busy / Exit code 6 means: compute too busy.
        ### ondeck refresh failed: GitHub refused, or the token is bad / Exit code 7 means: GitHub refused, or the token is bad.
        ### ondeck refresh failed: released, but some machines did not answer / Exit code 8 means: released, but some machines did not answer.
        ### ondeck refresh failed: unexpected, everything was dumped / Exit code 10 means: unexpected, everything was dumped.
        ### ondeck refresh failed: interrupted, and cleared up / Exit code 130 means: interrupted, and cleared up.
        ### ondeck refresh failed: terminated, and cleared up / Exit code 143 means: terminated, and cleared up.
        ");
        insta::assert_snapshot!(sections[2], @r"
        ### ondeck refresh failed: no capacity

        > it went &lt;wrong&gt;
        >
        > **hint:** try \`again\`

        Exit code 4 means: no capacity.
        ");
    }
}
