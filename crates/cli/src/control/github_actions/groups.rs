//! Folds the log of a command by its stages. A stage that logs something becomes a group; a stage
//! that logs nothing becomes a plain line, because an empty group is of no use.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::commands::{END_GROUP, group, harmless};

/// Which stage the log is in. Each function returns the text to print at that point.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<LogStage>);

#[derive(Debug, Default)]
enum LogStage {
    /// Before the first stage, or after the last.
    #[default]
    None,
    /// Nothing has been printed about the stage yet.
    Pending(String),
    /// A plain line has named the stage.
    Named(String),
    /// The stage's group is open.
    Open,
}

impl Groups {
    /// Ends the stage before and begins this one.
    pub(crate) fn stage(&self, doing: &str) -> String {
        let mut stage = self.state();
        let text = end(&stage);
        *stage = LogStage::Pending(doing.to_owned());
        text
    }

    /// A line is about to be logged.
    pub(crate) fn before_log(&self) -> String {
        let mut stage = self.state();
        let text = match &*stage {
            LogStage::Pending(doing) | LogStage::Named(doing) => format!("{}\n", group(doing)),
            LogStage::None | LogStage::Open => return String::new(),
        };
        *stage = LogStage::Open;
        text
    }

    /// The stage takes long and is named in this line.
    pub(crate) fn name_stage(&self, line: &str) -> String {
        let mut stage = self.state();
        if let LogStage::Pending(doing) = &*stage {
            *stage = LogStage::Named(doing.clone());
        }
        format!("{}\n", harmless(line))
    }

    /// The command is over.
    pub(crate) fn finish(&self) -> String {
        end(&std::mem::take(&mut *self.state()))
    }

    fn state(&self) -> MutexGuard<'_, LogStage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(stage: &LogStage) -> String {
    match stage {
        LogStage::None | LogStage::Named(_) => String::new(),
        LogStage::Pending(doing) => format!("{}\n", harmless(doing)),
        LogStage::Open => format!("{END_GROUP}\n"),
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
        log += &groups.name_stage("waiting (1 s)");
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
