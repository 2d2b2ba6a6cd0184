//! Getting a package: downloaded, checked, unpacked, and there as a whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use ondeck_core::ports::{Clock, PortError, PortResult, Random};
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_processes::folder;
use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::layout::Layout;
use super::program::{self, bounded};
use super::{Bounds, environment};
use crate::http::{self, Redirects};
use crate::packages::Package;

/// Packages are a fifth of this.
const LARGEST: u64 = 1024 * 1024 * 1024;
/// How long a server may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

const RETRY: Retry = Retry {
    attempts: 5,
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(10),
    within: Duration::from_secs(180),
    retry_all_errors: false,
};

/// Puts the package where [`Layout::package`] says.
pub(crate) async fn fetch(
    clock: &dyn Clock,
    layout: &Layout,
    package: &Package,
    bounds: &Bounds,
) -> Result<(), String> {
    let archive = layout.state.join("package.tar.gz");
    let unpacking = layout.package.with_extension("unpacking");
    let fetched = async {
        retry(clock, &Chance, RETRY, |_| download(clock, package, &archive, bounds.download))
            .await
            .map_err(|error| error.to_string())?;
        unpack(clock, &archive, &unpacking, bounds.unpack).await?;
        put_in_place(&unpacking, &layout.package)
    }
    .await;
    let tidied = folder::remove_file(&archive).and_then(|()| folder::remove(&unpacking));
    fetched.and(tidied.map_err(|e| format!("cannot remove what was downloaded: {e}")))
}

/// Takes the place of what was there. Whoever dies in between leaves nothing at all.
pub(crate) fn put_in_place(new: &Path, place: &Path) -> Result<(), String> {
    folder::remove(place)
        .and_then(|()| fs::rename(new, place))
        .map_err(|e| format!("cannot make {}: {e}", place.display()))
}

/// The dice for pauses between attempts.
pub(crate) struct Chance;

impl Random for Chance {
    fn number(&self) -> u64 {
        fastrand::u64(..)
    }
}

async fn download(
    clock: &dyn Clock,
    package: &Package,
    to: &Path,
    within: Duration,
) -> PortResult<()> {
    let downloading = stream(package, to);
    let digest = bounded(clock, within, downloading).await.unwrap_or_else(|| {
        Err(unavailable(package, &format!("it took more than {} s", within.as_secs_f32())))
    })?;
    if digest == package.sha256 {
        return Ok(());
    }
    Err(PortError::Unusable {
        service: "actions/runner",
        reason: format!("{} has another digest than was expected: {digest}", package.url),
        hint: "run ondeck refresh, which looks the digest up".to_owned(),
    })
}

async fn stream(package: &Package, to: &Path) -> PortResult<String> {
    let failed = |error: reqwest::Error| unavailable(package, &chain(&error));
    let disk = |error: std::io::Error| unavailable(package, &error.to_string());
    let url = http::address(&package.url).map_err(|problem| PortError::Unusable {
        service: "actions/runner",
        reason: format!("the address of the package {problem}"),
        hint: "run ondeck refresh, which looks the address up".to_owned(),
    })?;
    let client = http::builder(&url, Redirects::Anywhere).read_timeout(SILENCE).build();
    let mut answer = client.map_err(failed)?.get(url).send().await.map_err(failed)?;
    let status = answer.status();
    if !status.is_success() {
        let reason = format!("{} answered {status}", package.url);
        return Err(match status.as_u16() {
            408 | 429 | 500.. => unavailable(package, &reason),
            _ => PortError::Unusable {
                service: "actions/runner",
                reason,
                hint: "run ondeck refresh, which looks the address up".to_owned(),
            },
        });
    }
    let mut file = File::create(to).map_err(disk)?;
    let (mut digest, mut size) = (Sha256::new(), 0);
    while let Some(chunk) = answer.chunk().await.map_err(failed)? {
        size += chunk.len() as u64;
        if size > LARGEST {
            return Err(unavailable(package, "it is larger than any package"));
        }
        digest.update(&chunk);
        // Written in pieces of some kilobytes into memory that the system writes out later.
        file.write_all(&chunk).map_err(disk)?;
    }
    Ok(digest.finalize().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
}

fn unavailable(package: &Package, reason: &str) -> PortError {
    let reason = format!("cannot download {}: {reason}", package.url);
    PortError::Unavailable { service: "actions/runner", reason }
}

/// An error with all that it was caused by, since reqwest's own words say little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

async fn unpack(
    clock: &dyn Clock,
    archive: &Path,
    to: &Path,
    within: Duration,
) -> Result<(), String> {
    let failed = |why: String| format!("cannot unpack the package: {why}");
    folder::remove(to).and_then(|()| fs::create_dir(to)).map_err(|e| failed(e.to_string()))?;
    let mut command = Command::new("tar");
    environment::give_plain(&mut command);
    command.args(["--no-same-owner", "-xzf"]).arg(archive).arg("-C").arg(to);
    let ended = program::run(clock, command, within).await.map_err(failed)?;
    ended.problem().map_or(Ok(()), |problem| Err(failed(problem)))
}
