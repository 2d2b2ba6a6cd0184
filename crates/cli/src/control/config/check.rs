//! `ondeck config check`: whether the file is valid, without asking the pool.

use ondeck_core::model::failure::Failure;

use super::{PoolFile, Unusable, digest, level, together};
use crate::control::report::config::{CheckReport, PoolDigest};
use crate::inputs::Common;

/// The outcome of a check.
pub(crate) type Checked = Result<CheckReport, Failure>;

/// Reads the file and states what it holds, or all that is wrong with it. Fails if the file cannot be
/// read, or lacks the trust level that was given.
pub(crate) fn check(common: &Common) -> Checked {
    let file = match PoolFile::read(common) {
        Ok(file) => file,
        Err(Unusable::Unread(failure)) => return Err(failure),
        Err(Unusable::Invalid { path, problems }) => {
            return Ok(CheckReport { path, pools: Vec::new(), problems });
        }
    };
    let levels = match level(common) {
        Some(level) => vec![Some(level)],
        None => std::iter::once(None).chain(file.levels().map(Some)).collect(),
    };
    let pools = levels.into_iter().map(|level| {
        let settings = together::texts(&file.layer(level.as_deref())?);
        Ok(PoolDigest { trust: level, settings: settings.len(), digest: digest(&settings) })
    });
    let pools = pools.collect::<Result<_, Failure>>()?;
    Ok(CheckReport { path: file.source.path, pools, problems: Vec::new() })
}
