//! The log of a mode, folded by what was being done. A stage that logs something becomes a group;
//! one that logs nothing is a plain line, because a fold with nothing in it only disappoints.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::commands::{END_GROUP, group, harmless};

/// Where the log stands.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<Stage>);

#[derive(Debug, Default)]
enum Stage {
    /// Before the first, and after the last.
    #[default]
    None,
    /// Nothing has been said about it yet.
    Silent(String),
    /// It is known from a plain line.
    Told(String),
    /// Its group is open.
    Open,
}

impl Groups {
    /// Another stage begins; gives what is to be said before it.
    pub(crate) fn stage(&self, doing: &str) -> String {
        let mut stage = self.state();
        let said = end(&stage);
        *stage = Stage::Silent(doing.to_owned());
        said
    }

    /// Something is about to be logged; gives what is to be said before.
    pub(crate) fn before_log(&self) -> String {
        let mut stage = self.state();
        let said = match &*stage {
            Stage::Silent(doing) | Stage::Told(doing) => format!("{}\n", group(doing)),
            Stage::None | Stage::Open => return String::new(),
        };
        *stage = Stage::Open;
        said
    }

    /// The stage is named in a line of its own; gives that line.
    pub(crate) fn tell(&self, line: &str) -> String {
        let mut stage = self.state();
        if let Stage::Silent(doing) = &*stage {
            *stage = Stage::Told(doing.clone());
        }
        format!("{}\n", harmless(line))
    }

    /// The mode is over; gives what is to be said.
    pub(crate) fn finish(&self) -> String {
        end(&std::mem::take(&mut *self.state()))
    }

    fn state(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(stage: &Stage) -> String {
    match stage {
        Stage::None | Stage::Told(_) => String::new(),
        Stage::Silent(doing) => format!("{}\n", harmless(doing)),
        Stage::Open => format!("{END_GROUP}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_a_group_only_if_something_is_logged() {
        let groups = Groups::default();
        let mut log = String::new();
        log += &groups.before_log();
        log += "begun\n";
        log += &groups.stage("looking");
        log += &groups.stage("waiting");
        log += &groups.tell("waiting (1 s)");
        log += &groups.stage("launching");
        for line in ["one\n", "two\n"] {
            log += &groups.before_log();
            log += line;
        }
        log += &groups.finish();
        log += &groups.before_log();
        log += "over\n";
        assert_eq!(
            log,
            "begun\nlooking\nwaiting (1 s)\n\
             ::group::launching\none\ntwo\n::endgroup::\nover\n"
        );
    }
}
