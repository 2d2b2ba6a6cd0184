//! Shared memory, message queues and semaphores of System V, which outlive their processes.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use ondeck_processes::output;
use serde::{Deserialize, Serialize};

/// Each kind: its file below `proc/sysvipc`, and the option of `ipcrm`.
const KINDS: [(&str, &str); 3] = [("shm", "-m"), ("msg", "-q"), ("sem", "-s")];

/// The ids of all objects, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SysV([BTreeSet<u32>; 3]);

impl SysV {
    /// The objects that exist. A kernel without them has none.
    pub(super) fn read(root: &Path) -> Result<SysV, String> {
        let mut found = SysV::default();
        for (ids, (file, _)) in found.0.iter_mut().zip(KINDS) {
            let path = root.join("proc/sysvipc").join(file);
            let text = match fs::read_to_string(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read.map_err(|e| format!("cannot read {}: {e}", path.display()))?,
            };
            // The first line has the names of the columns; the second column is the id.
            let id = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u32>().ok();
            ids.extend(text.lines().skip(1).filter_map(id));
        }
        Ok(found)
    }

    /// Removes the objects that are not in `before`. Fails if one cannot be removed.
    pub(super) fn remove_since(&self, before: &SysV) -> Result<(), String> {
        for ((now, then), (kind, option)) in self.0.iter().zip(&before.0).zip(KINDS) {
            for id in now.difference(then) {
                let removed = output(Command::new("ipcrm").args([option, &id.to_string()]));
                let failed = |why: &dyn std::fmt::Display| {
                    format!("cannot remove an object of System V ({kind} {id}): {why}")
                };
                let removed = removed.map_err(|error| failed(&error))?;
                if !removed.status.success() {
                    return Err(failed(&String::from_utf8_lossy(&removed.stderr).trim_end()));
                }
            }
        }
        Ok(())
    }
}
