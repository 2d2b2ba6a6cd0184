//! Downloads a package, checks its digest, and unpacks it all or nothing.

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
use super::program::{self, timeout};
use super::{Timeouts, environment};
use crate::http::{self, Redirects, with_causes};
use crate::packages::Package;

/// The largest accepted download. Packages are about a fifth of this.
const LARGEST: u64 = 1024 * 1024 * 1024;
/// How long a server may send nothing.
const SILENCE: Duration = Duration::from_secs(30);

const RETRY: Retry = Retry {
    attempts: 5,
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(10),
    within: Duration::from_secs(180),
    retry_all_errors: false,
};

/// Downloads the package and unpacks it to [`Layout::package`]. Removes temporary files even if it
/// fails.
pub(crate) async fn fetch(
    clock: &dyn Clock,
    layout: &Layout,
    package: &Package,
    timeouts: &Timeouts,
) -> Result<(), String> {
    let archive = layout.state.join("package.tar.gz");
    let unpacking = layout.package.with_extension("unpacking");
    let fetched = async {
        retry(clock, &FastRandom, RETRY, |_| download(clock, package, &archive, timeouts.download))
            .await
            .map_err(|error| error.to_string())?;
        unpack(clock, &archive, &unpacking, timeouts.unpack).await?;
        put_in_place(&unpacking, &layout.package)
    }
    .await;
    let tidied = folder::remove_file(&archive).and_then(|()| folder::remove(&unpacking));
    fetched.and(tidied.map_err(|e| format!("cannot remove the download: {e}")))
}

/// Replaces the folder `place` by `new`. If the agent is killed in between, `place` does not exist.
pub(crate) fn put_in_place(new: &Path, place: &Path) -> Result<(), String> {
    folder::remove(place)
        .and_then(|()| fs::rename(new, place))
        .map_err(|e| format!("cannot make {}: {e}", place.display()))
}

/// Random numbers for the pauses between attempts.
pub(crate) struct FastRandom;

impl Random for FastRandom {
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
    let digest = timeout(clock, within, downloading).await.unwrap_or_else(|| {
        Err(unavailable(package, &format!("it took more than {} s", within.as_secs_f32())))
    })?;
    if digest == package.sha256 {
        return Ok(());
    }
    Err(PortError::Unusable {
        service: "actions/runner",
        reason: format!("unexpected digest of {}: {digest}", package.url),
        hint: "run ondeck refresh to look up the digest again".to_owned(),
    })
}

async fn stream(package: &Package, to: &Path) -> PortResult<String> {
    let failed = |error: reqwest::Error| unavailable(package, &with_causes(&error));
    let disk = |error: std::io::Error| unavailable(package, &error.to_string());
    let url = http::address(&package.url).map_err(|problem| PortError::Unusable {
        service: "actions/runner",
        reason: format!("the address of the package {problem}"),
        hint: "run ondeck refresh to look up the address again".to_owned(),
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
                hint: "run ondeck refresh to look up the address again".to_owned(),
            },
        });
    }
    let mut file = File::create(to).map_err(disk)?;
    let (mut digest, mut size) = (Sha256::new(), 0);
    while let Some(chunk) = answer.chunk().await.map_err(failed)? {
        size += chunk.len() as u64;
        if size > LARGEST {
            return Err(unavailable(package, "it is too large for a package"));
        }
        digest.update(&chunk);
        // Blocking is short: each piece is a few kilobytes and goes to the page cache.
        file.write_all(&chunk).map_err(disk)?;
    }
    Ok(digest.finalize().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
}

fn unavailable(package: &Package, reason: &str) -> PortError {
    let reason = format!("cannot download {}: {reason}", package.url);
    PortError::Unavailable { service: "actions/runner", reason }
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
    environment::apply_minimal(&mut command);
    command.args(["--no-same-owner", "-xzf"]).arg(archive).arg("-C").arg(to);
    let output = program::run(clock, command, within).await.map_err(failed)?;
    output.problem().map_or(Ok(()), |problem| Err(failed(problem)))
}
