//! Where the settings are in `ondeck.toml`.

/// The place of a stored setting in `ondeck.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileKey {
    /// The table that holds a key with the setting's name; for a setting with a structure of its own,
    /// the name of that structure.
    pub table: &'static str,
    pub form: FileForm,
}

/// How a setting is written in `ondeck.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileForm {
    /// A string, which is the setting's text.
    Text,
    /// A number, with decimals or without.
    Number,
    Whole,
    Flag,
    /// An array of strings, which this separator joins to the setting's text.
    List(&'static str),
    /// A table for each resource class, with its size.
    Classes,
    /// An array of tables, one for each minimum of idle machines.
    MinIdle,
    /// A table with a number for the pool and for classes.
    MaxMachines,
}

impl FileForm {
    /// Whether the setting is a structure of its own, beside the tables with plain keys.
    pub fn is_structured(self) -> bool {
        matches!(self, FileForm::Classes | FileForm::MinIdle | FileForm::MaxMachines)
    }
}
