//! The control plane's half of the choice of adapters: records and compute, each by itself. A new
//! provider is one more arm of [`records`] or [`compute`].

#[cfg(feature = "aws")]
mod aws;
mod doctor;
mod forge;
#[cfg(feature = "github")]
mod kept;
#[cfg(feature = "local")]
mod local;
mod no_forge;
mod teardown;

use std::collections::BTreeMap;
use std::sync::Arc;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::plane::{KnownSettings, Plane};
use ondeck_core::modes::refresh::AbsentForge;
use ondeck_core::ports::{
    Clock, Compute, Forge, History, Pool, PortError, PortResult, Progress, Store,
};
use ondeck_core::runtime::retry::{Retry, retry};

pub(crate) use self::doctor::{ToExamine, to_examine};
#[cfg(all(feature = "github", feature = "simulate"))]
pub(crate) use self::forge::addresses as github_addresses;
#[cfg(feature = "github")]
pub(crate) use self::kept::Kept;
#[cfg(feature = "local")]
pub(crate) use self::local::LocalFiles;
use self::no_forge::NoForge;
pub(crate) use self::teardown::{ToTearDown, to_tear_down};
use crate::backend::check_reachable;
use crate::control::applied::Enforcement;
use crate::control::notices::Webhook;
use crate::control::progress::NoProgress;
use crate::inputs::{Backend, Common};
use crate::surroundings::Entropy;

/// The records, as the control plane uses them, and what compute and forge must know about them.
struct Records {
    store: Arc<dyn Store>,
    /// What has happened, for people.
    history: Arc<dyn History>,
    pool: Arc<dyn Pool>,
    /// The clock that every process of this pool goes by.
    clock: Arc<dyn Clock>,
    /// Names this set of records among all those whose runners one forge lists.
    label: String,
    /// The repository or organisation that the pool is named after.
    #[cfg_attr(not(feature = "github"), expect(dead_code, reason = "only GitHub asks for it"))]
    owner: Option<String>,
    /// The open file, which local machines and the local forge share.
    #[cfg(feature = "local")]
    db: Option<ondeck_local::Db>,
    /// The connection, which machines from AWS share.
    #[cfg(feature = "aws")]
    cloud: Option<ondeck_aws::Cloud>,
}

/// The pool, as its records name it and people know it. Fails if none was named.
pub(crate) fn pool_name(common: &Common) -> Result<String, Failure> {
    match common.records {
        #[cfg(feature = "local")]
        Backend::Local => Ok(crate::backend::local::label(&crate::backend::local::home(common)?)),
        #[cfg(feature = "aws")]
        Backend::Aws => Ok(crate::backend::aws::named_pool(common)?.to_string()),
        #[cfg(not(all(feature = "local", feature = "aws")))]
        missing => Err(crate::backend::not_built(missing)),
    }
}

/// Connects the control plane to the chosen adapters, without a forge to call. Fails with exit code
/// 2 if the inputs name adapters that this build lacks or that cannot reach each other.
pub(crate) async fn plane(common: &Common, progress: Arc<dyn Progress>) -> Result<Plane, Failure> {
    check_reachable(common)?;
    let records = records(common, false).await?;
    assemble(common, false, records, Arc::new(NoForge), progress)
}

/// The same for commands that name who asks, together with who AWS says that the caller is, if the records
/// are there and it says so. That takes one call.
pub(crate) async fn plane_and_caller(
    common: &Common,
    progress: Arc<dyn Progress>,
) -> Result<(Plane, Option<String>), Failure> {
    check_reachable(common)?;
    let records = records(common, false).await?;
    #[cfg(feature = "aws")]
    let caller = aws::caller(&records).await;
    #[cfg(not(feature = "aws"))]
    let caller = None;
    Ok((assemble(common, false, records, Arc::new(NoForge), progress)?, caller))
}

/// The same for explain, together with what has happened.
pub(crate) async fn plane_and_history(
    common: &Common,
) -> Result<(Plane, Arc<dyn History>), Failure> {
    check_reachable(common)?;
    let records = records(common, false).await?;
    let history = records.history.clone();
    Ok((assemble(common, false, records, Arc::new(NoForge), Arc::new(NoProgress))?, history))
}

/// The same for apply, which creates local files that are missing if `create`.
#[cfg(feature = "config")]
pub(crate) async fn plane_of_apply(common: &Common, create: bool) -> Result<Plane, Failure> {
    check_reachable(common)?;
    let records = records(common, create).await?;
    assemble(common, create, records, Arc::new(NoForge), Arc::new(NoProgress))
}

/// What refresh works with.
pub(crate) struct ForRefresh {
    /// With a forge to call.
    pub(crate) plane: Plane,
    /// The stored settings, if there are any.
    pub(crate) stored: Option<BTreeMap<String, String>>,
    pub(crate) enforcement: Enforcement,
    /// Where notices go, or why they cannot be sent.
    pub(crate) webhook: Result<Option<Webhook>, String>,
}

/// The same for refresh. If `create`, local files that are missing are created. If the inputs lead to no
/// forge, that is why the stored settings stay in force.
pub(crate) async fn plane_of_refresh(
    common: &Common,
    create: bool,
    progress: Arc<dyn Progress>,
) -> Result<ForRefresh, Failure> {
    check_reachable(common)?;
    let records = records(common, create).await?;
    let stored = stored_settings(&records).await?;
    let mut enforcement = Enforcement::of(common, &stored);
    let forge: Arc<dyn Forge> =
        match forge::of_refresh(&enforcement.common, &stored, &records).await {
            Ok(forge) => forge,
            Err(failure) => {
                enforcement.settings = enforcement.settings.and(Err(failure));
                Arc::new(AbsentForge)
            }
        };
    // Nothing stored may mean that there is no table; refresh finds that out by itself.
    let stored = Some(stored).filter(|stored| !stored.is_empty());
    let webhook = webhook(&enforcement.common, &records);
    let plane = assemble(common, create, records, forge, progress)?;
    Ok(ForRefresh { plane, stored, enforcement, webhook })
}

#[cfg(feature = "github")]
fn webhook(common: &Common, records: &Records) -> Result<Option<Webhook>, String> {
    #[cfg(feature = "aws")]
    let kept = {
        use crate::inputs::notices::WEBHOOK;
        kept::kept(&common.given, records, &WEBHOOK, &ondeck_aws::NOTICE_WEBHOOK_SOURCE)
    };
    #[cfg(not(feature = "aws"))]
    let kept = Ok(None);
    Webhook::of(&common.given, kept, &records.label)
}

#[cfg(not(feature = "github"))]
fn webhook(_common: &Common, _records: &Records) -> Result<Option<Webhook>, String> {
    Ok(None)
}

/// The stored settings; empty before the first refresh.
async fn stored_settings(records: &Records) -> PortResult<BTreeMap<String, String>> {
    let read = |_| records.store.settings();
    match retry(&*records.clock, &Entropy, Retry::SHORT, read).await {
        Err(PortError::NotSetUp { .. }) => Ok(BTreeMap::new()),
        answer => answer,
    }
}

fn assemble(
    common: &Common,
    create: bool,
    records: Records,
    forge: Arc<dyn Forge>,
    progress: Arc<dyn Progress>,
) -> Result<Plane, Failure> {
    let compute = compute(common, create, &records)?;
    let Records { store, pool, clock, .. } = records;
    let (random, known_settings) = (Arc::new(Entropy), KnownSettings::default());
    let plane = Plane { store, pool, compute, forge, clock, random, progress, known_settings };
    #[cfg(feature = "holds")]
    let plane = crate::control::hold_points::wrap(plane);
    Ok(plane)
}

#[cfg_attr(
    not(feature = "local"),
    expect(unused_variables, reason = "refresh creates local files only")
)]
async fn records(common: &Common, create: bool) -> Result<Records, Failure> {
    match common.records {
        #[cfg(feature = "local")]
        Backend::Local => local::records(common, create),
        #[cfg(feature = "aws")]
        Backend::Aws => aws::records(common).await,
        #[cfg(not(all(feature = "local", feature = "aws")))]
        missing => Err(crate::backend::not_built(missing)),
    }
}

#[cfg_attr(
    not(feature = "local"),
    expect(unused_variables, reason = "refresh creates local files only")
)]
fn compute(common: &Common, create: bool, records: &Records) -> Result<Arc<dyn Compute>, Failure> {
    match common.compute {
        #[cfg(feature = "local")]
        Backend::Local => local::compute(common, create, records),
        #[cfg(feature = "aws")]
        Backend::Aws => aws::compute(records),
        #[cfg(not(all(feature = "local", feature = "aws")))]
        missing => Err(crate::backend::not_built(missing)),
    }
}
