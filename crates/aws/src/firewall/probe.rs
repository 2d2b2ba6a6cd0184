//! Tries to reach the metadata service, as a job could.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use ondeck_core::model::signal::output_tail;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

/// The addresses of the metadata service.
pub(super) const IPV4: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
pub(super) const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

const PORT: u16 = 80;

/// How long a connection may take. On EC2 it takes less than a millisecond.
const CONNECT: Duration = Duration::from_secs(2);
/// How long a process that tries it may take.
const LIMIT: Duration = Duration::from_secs(20);

/// The first address at which the calling process can open a connection to the metadata service, or
/// `None` if there is none.
pub async fn reachable() -> Option<IpAddr> {
    for address in [IpAddr::V4(IPV4), IpAddr::V6(IPV6)] {
        let connected = timeout(CONNECT, TcpStream::connect(SocketAddr::new(address, PORT))).await;
        if matches!(connected, Ok(Ok(_))) {
            return Some(address);
        }
    }
    None
}

/// Whether a connection of the calling process is refused, as the rule does it. EC2 itself does not
/// refuse any; other failures mean that there is no network yet.
pub(super) async fn is_refused() -> bool {
    let connect = TcpStream::connect(SocketAddr::new(IPV4.into(), PORT));
    match timeout(CONNECT, connect).await {
        Ok(Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
        Ok(Ok(_)) | Err(_) => false,
    }
}

/// Runs the probe as jobs are run, with `wrapper` in front of it. Fails if it reaches the metadata
/// service, or cannot be run.
pub(super) async fn run(wrapper: Vec<OsString>, probe: &[OsString]) -> Result<(), String> {
    let failed =
        |why: String| format!("the rule of the metadata service cannot be tried out: {why}");
    let mut words = wrapper.into_iter().chain(probe.iter().cloned());
    let Some(program) = words.next() else { return Err(failed("no command".to_owned())) };
    let mut command = Command::new(program);
    command.args(words).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(LIMIT, command.output()).await {
        Ok(output) => output.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed(format!("it took more than {} s", LIMIT.as_secs()))),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    match said.trim().parse::<IpAddr>() {
        Ok(address) => Err(format!("jobs can reach the metadata service at {address}")),
        Err(_) => {
            let words = output_tail(&String::from_utf8_lossy(&output.stderr));
            Err(failed(format!("{}: {words}", output.status)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_probe_that_reaches_the_service_or_does_not_run_is_a_failure() {
        let failed = "the rule of the metadata service cannot be tried out: exit status:";
        for (script, expected) in [
            ("exit 0", Ok(())),
            (
                "echo 169.254.169.254; exit 1",
                Err("jobs can reach the metadata service at 169.254.169.254"),
            ),
            (
                "echo fd00:ec2::254; exit 1",
                Err("jobs can reach the metadata service at fd00:ec2::254"),
            ),
            ("echo no such cgroup >&2; exit 2", Err(&*format!("{failed} 2: no such cgroup"))),
            ("exit 127", Err(&*format!("{failed} 127: "))),
        ] {
            let wrapper = ["/bin/sh", "-c"].map(OsString::from).to_vec();
            let result = run(wrapper, &[script.into()]).await;
            assert_eq!(result, expected.map_err(str::to_owned), "{script}");
        }
    }
}
