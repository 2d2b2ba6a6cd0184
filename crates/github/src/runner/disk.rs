//! Free space on the machine's disks, and what is given up for it.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::io::Errno;

/// A file system with less free space than the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) place: PathBuf,
    /// What was counted: bytes or inodes.
    pub(crate) of: &'static str,
    pub(crate) free_percent: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { place, of, free_percent } = self;
        write!(f, "only {free_percent} % of the {of} are free in {}", place.display())
    }
}

/// The first of these places whose file system has less than `limit` percent of its bytes or inodes
/// free. Places that do not exist are left out.
pub(crate) fn shortage(places: &[PathBuf], limit: u8) -> Result<Option<Shortage>, String> {
    for place in places {
        let Some(free) = measure(place)? else { continue };
        for (of, free_percent) in free {
            if free_percent < u64::from(limit) {
                return Ok(Some(Shortage { place: place.clone(), of, free_percent }));
            }
        }
    }
    Ok(None)
}

/// How much is free for users other than root, in percent. `None` if there is no such place.
fn measure(place: &Path) -> Result<Option<[(&'static str, u64); 2]>, String> {
    let found = match statvfs(place) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(format!("cannot measure {}: {error}", place.display())),
    };
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    let bytes = percent(found.f_bavail, used.saturating_add(found.f_bavail));
    Ok(Some([("bytes", bytes), ("inodes", percent(found.f_favail, found.f_files))]))
}

/// A file system that does not count something has enough of it.
fn percent(free: u64, all: u64) -> u64 {
    free.saturating_mul(100).checked_div(all).unwrap_or(100)
}

/// The remedy to apply next, cheapest first; `None` if there is no shortage. A remedy that did not
/// help is followed by the next. Fails with the shortage when all were applied.
pub(crate) fn next_remedy<R>(
    found: Option<Shortage>,
    remedies: &mut impl Iterator<Item = R>,
) -> Result<Option<R>, Shortage> {
    match found {
        None => Ok(None),
        Some(shortage) => remedies.next().map(Some).ok_or(shortage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_applied_until_there_is_room() {
        let short = |free_percent| Shortage { place: "/var".into(), of: "inodes", free_percent };
        for (mut free, expected) in
            [(20, &[][..]), (9, &[1][..]), (3, &[1, 0, 7]), (0, &[1, 0, 7, 2])]
        {
            let (mut remedies, mut applied) = ([1, 0, 7, 2, 9].into_iter(), Vec::new());
            let measure = |free| (free < 10).then(|| short(free));
            while let Some(gain) = next_remedy(measure(free), &mut remedies).unwrap() {
                applied.push(gain);
                free += gain;
            }
            assert_eq!(applied, expected);
        }
        let left = next_remedy(Some(short(2)), &mut std::iter::empty::<u8>()).unwrap_err();
        assert_eq!(left.to_string(), "only 2 % of the inodes are free in /var");
    }

    #[test]
    fn space_is_measured_in_percent() {
        for (free, all, expected) in [(1, 3, 33), (0, 5, 0), (5, 5, 100), (0, 0, 100)] {
            assert_eq!(percent(free, all), expected);
        }
        let places = [PathBuf::from("/nonexistent"), std::env::temp_dir()];
        assert_eq!(shortage(&places, 0), Ok(None));
        let full = shortage(&places, 101).unwrap().unwrap();
        assert_eq!(full.place, std::env::temp_dir());
    }
}
