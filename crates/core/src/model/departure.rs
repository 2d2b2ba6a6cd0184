//! Whether an operator wants a machine to leave the pool.

/// What an operator has decided about a machine. Versions that do not know it leave it in the record,
/// and treat the machine like any other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Departure {
    /// No operator wants it to leave.
    #[default]
    None,
    /// It leaves as one that has reached the limit of its lifetime does: after its run, or when it is
    /// idle and others are idle in its place. Until then a run may claim it.
    Retired,
    /// No further run gets it: it leaves after its present run, or at once if it is idle.
    Drained,
}

impl Departure {
    /// Whether it leaves after its present run.
    pub fn is_wanted(self) -> bool {
        self != Departure::None
    }

    /// Whether no further run may have the machine.
    pub fn is_drained(self) -> bool {
        self == Departure::Drained
    }

    /// The text in a record. That of a machine that stays is empty, which is also what versions without
    /// this attribute leave.
    pub fn stored(self) -> &'static str {
        match self {
            Departure::None => "",
            Departure::Retired => "retired",
            Departure::Drained => "drained",
        }
    }

    /// Reads the text in a record. A text of a later version counts as drained.
    pub fn read(stored: &str) -> Departure {
        match stored {
            "" => Departure::None,
            "retired" => Departure::Retired,
            _ => Departure::Drained,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_another_version_is_read_strictly() {
        for departure in [Departure::None, Departure::Retired, Departure::Drained] {
            assert_eq!(Departure::read(departure.stored()), departure);
        }
        assert_eq!(Departure::read("at-midnight"), Departure::Drained);
    }
}
