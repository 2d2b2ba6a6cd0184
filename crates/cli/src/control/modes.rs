//! The three modes as commands: inputs in, mode called, outcome told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::provision::{Outcome, Request};

use crate::control::progress::ProgressDisplay;
use crate::control::report::{Report, deliver};
use crate::inputs::{self, Common};
use crate::surroundings::stop_on_signals;
use crate::{backend, logging};

/// `ondeck refresh`
pub(crate) async fn refresh(common: &Common, inputs: &inputs::Refresh) -> u8 {
    // Before anything is said, so that nothing that is said can show one.
    inputs.github.secrets().for_each(crate::control::github_actions::mask);
    let watcher = begin("refresh", common);
    let stop = stop_on_signals();
    let given = settings(common, inputs);
    // Refresh hears the signal itself, because it may have machines to clear up.
    let result = match open(common, Some(inputs), &watcher).await {
        Ok(plane) => {
            let result = ondeck_core::modes::refresh::refresh(&plane, &given, &stop).await;
            finish(&plane).await;
            result
        }
        Err(failure) => Err(failure),
    };
    watcher.finish();
    let told = result.as_ref().map(|outcome| outcome as &dyn Report).map_err(Clone::clone);
    deliver("refresh", told, common)
}

/// `ondeck provision`
pub(crate) async fn provision(common: &Common, inputs: &inputs::Provision) -> u8 {
    let watcher = begin("provision", common);
    let stop = stop_on_signals();
    let request = match request(inputs) {
        Ok(request) => request,
        Err(failure) => return deliver("provision", Err(failure), common),
    };
    let outcome = match open(common, None, &watcher).await {
        // Provision hears the signal itself, because it must clear up.
        Ok(plane) => {
            let outcome = ondeck_core::modes::provision::provision(&plane, &request, &stop).await;
            finish(&plane).await;
            outcome
        }
        Err(failure) => Outcome::refused(&request, failure),
    };
    watcher.finish();
    deliver("provision", Ok(&outcome), common)
}

/// `ondeck release`
pub(crate) async fn release(common: &Common, inputs: &inputs::Release) -> u8 {
    let watcher = begin("release", common);
    let stop = stop_on_signals();
    let work = async {
        let run = inputs.run.get()?;
        let plane = stop.unless_raised(open(common, None, &watcher)).await??;
        let times = inputs.times.overrides();
        let released = ondeck_core::modes::release::release(&plane, &run, &times);
        let result = stop.unless_raised(released).await;
        // Also where it was told to stop: what it has done until then has been done.
        finish(&plane).await;
        result?
    };
    let result: Result<_, Failure> = work.await;
    watcher.finish();
    let told = result.as_ref().map(|outcome| outcome as &dyn Report).map_err(Clone::clone);
    deliver("release", told, common)
}

/// Starts logs and progress.
fn begin(mode: &'static str, common: &Common) -> ProgressDisplay {
    let watcher = ProgressDisplay::start(mode, common);
    logging::start(common, watcher.clone());
    watcher
}

async fn open(
    common: &Common,
    refresh: Option<&inputs::Refresh>,
    watcher: &ProgressDisplay,
) -> Result<Plane, Failure> {
    backend::plane(common, refresh, Arc::new(watcher.clone())).await
}

/// Lets the store write what it writes late. What is lost by a failure is only for people.
async fn finish(plane: &Plane) {
    const LONGEST: Duration = Duration::from_secs(2);
    match tokio::time::timeout(LONGEST, plane.store.finish()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("not every event was written: {error}"),
        Err(_) => tracing::warn!("not every event was written in time"),
    }
}

fn request(inputs: &inputs::Provision) -> Result<Request, Failure> {
    Ok(Request {
        run: inputs.run.get()?,
        count: inputs.instance_count,
        class: inputs.resource_class.clone(),
        usage: inputs.usage_class,
        types: inputs.allowed_instance_types.clone(),
        times: inputs.times.overrides(),
        fresh_only: false,
        again: false,
        capacity_fallback: inputs.capacity_fallback,
    })
}

/// What was given, by setting name.
fn settings(common: &Common, inputs: &inputs::Refresh) -> BTreeMap<String, String> {
    let (github, aws, local) = (&inputs.github, &inputs.aws, &inputs.local);
    let texts = [
        ("resource-class-config", &inputs.resource_class_config),
        ("min-idle", &inputs.min_idle),
        ("pre-runner-script", &inputs.pre_runner_script),
        ("rescue", &inputs.rescue),
        ("runner-group", &github.runner_group),
        ("actions-runner-version", &github.actions_runner_version),
        ("runner-user", &github.runner_user),
        ("ami", &aws.ami),
        ("subnet-ids", &aws.subnet_ids),
        ("security-group-ids", &aws.security_group_ids),
        ("iam-instance-profile", &aws.iam_instance_profile),
        ("agent-url", &aws.agent_url),
        ("agent-sha256", &aws.agent_sha256),
        ("volume-size-gb", &aws.volume_size_gb),
        ("key-name", &aws.key_name),
        ("local-capacity", &local.local_capacity),
        ("local-boot-ms", &local.local_boot_ms),
        ("local-catalogue", &local.local_catalogue),
        ("local-launch-failure", &local.local_launch_failure),
        ("local-duplicate-tickets", &local.local_duplicate_tickets),
    ];
    let mut settings = inputs.times.settings();
    if let Some(forge) = backend::forge_to_keep(common, inputs) {
        settings.insert(backend::FORGE.to_owned(), forge.to_owned());
    }
    for (name, value) in texts {
        if let Some(value) = value {
            settings.insert(name.to_owned(), value.clone());
        }
    }
    settings
}
