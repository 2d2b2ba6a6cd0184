//! What doctor examines: the ports of a pool, and whom to ask about its surroundings.

use std::sync::Arc;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::doctor::ForgeAccess;
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::Diagnosis;

use super::forge::{self, ForgeOfDoctor};
use super::no_forge::NoForge;
use super::{Records, assemble, records, stored_settings};
use crate::backend::check_reachable;
use crate::control::progress::NoProgress;
use crate::inputs::{Backend, Common};

/// A pool to examine.
pub(crate) struct ToExamine {
    pub(crate) plane: Plane,
    pub(crate) diagnosis: Arc<dyn Diagnosis>,
    forge: ForgeOfDoctor,
}

impl ToExamine {
    /// Whom to ask about jobs and runners.
    pub(crate) fn forge(&self) -> ForgeAccess<'_> {
        match &self.forge {
            ForgeOfDoctor::GitHub(forge) => ForgeAccess::Open(&**forge),
            ForgeOfDoctor::Closed(needs) => ForgeAccess::Closed(needs.clone()),
            ForgeOfDoctor::Local => ForgeAccess::OfProvider,
        }
    }
}

/// Connects to the pool. Nothing is created or changed. Fails as [`plane`](super::plane) does.
pub(crate) async fn to_examine(common: &Common) -> Result<ToExamine, Failure> {
    check_reachable(common)?;
    let records = records(common, false).await?;
    // What is wrong with the settings is a finding.
    let stored = stored_settings(&records).await.unwrap_or_default();
    let forge = forge::of_doctor(common, &stored, &records).await?;
    let diagnosis = diagnosis(common, &records, matches!(forge, ForgeOfDoctor::Local))?;
    let plane = assemble(common, false, records, Arc::new(NoForge), Arc::new(NoProgress))?;
    Ok(ToExamine { plane, diagnosis, forge })
}

/// Who knows the machines, and the caller.
#[cfg_attr(
    not(feature = "local"),
    expect(unused_variables, reason = "only this computer has a forge")
)]
fn diagnosis(
    common: &Common,
    records: &Records,
    has_local_forge: bool,
) -> Result<Arc<dyn Diagnosis>, Failure> {
    match common.compute {
        #[cfg(feature = "local")]
        Backend::Local => super::local::diagnosis(common, records, has_local_forge),
        #[cfg(feature = "aws")]
        Backend::Aws => super::aws::diagnosis(records),
        #[cfg(not(all(feature = "local", feature = "aws")))]
        missing => Err(crate::backend::not_built(missing)),
    }
}
