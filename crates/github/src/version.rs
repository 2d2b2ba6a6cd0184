use std::fmt;
use std::str::FromStr;

/// Three numbers, compared one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32, pub(crate) u32);

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Version, ()> {
        let part = |text: &str| {
            let digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
            if digits { text.parse::<u32>().map_err(|_| ()) } else { Err(()) }
        };
        match text.split('.').collect::<Vec<_>>()[..] {
            [major, minor, patch] => Ok(Version(part(major)?, part(minor)?, part(patch)?)),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}
