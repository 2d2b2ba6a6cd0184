//! A network as that of an EC2 machine: the metadata service is another host, and a container has a
//! network of its own behind the machine. Made of network namespaces, in which the rules of a
//! machine concern nothing else on this computer.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ondeck_standin::{MachineCommand, not_applicable};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::harness::AwsHarness;
use crate::harness::within;

/// Lays the network out, says so, and stays until its input ends.
const LAY_OUT: &str = r#"
    set -e
    [ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 none /sys/fs/cgroup
    mount -t tmpfs none /run
    for host in metadata container; do ip netns add $host; done
    ip link set lo up
    ip link add to-metadata type veth peer name eth0 netns metadata
    ip link add to-container type veth peer name eth0 netns container
    ip address add 10.77.1.1/24 dev to-metadata
    ip address add fd77::1/64 dev to-metadata nodad
    ip address add 10.77.2.1/24 dev to-container
    for link in to-metadata to-container; do ip link set $link up; done
    ip route add 169.254.169.254 dev to-metadata
    ip route add fd00:ec2::254 dev to-metadata
    echo 1 >/proc/sys/net/ipv4/ip_forward
    ip -n metadata link set eth0 up
    for address in 10.77.1.2/24 169.254.169.254/32; do
        ip -n metadata address add $address dev eth0
    done
    for address in fd77::2/64 fd00:ec2::254/128; do
        ip -n metadata address add $address dev eth0 nodad
    done
    ip -n metadata route add default via 10.77.1.1
    ip -n container link set eth0 up
    ip -n container address add 10.77.2.2/24 dev eth0
    ip -n container route add default via 10.77.2.1
    # Not every kernel knows the expression that the rule of the agent uses.
    mkdir /sys/fs/cgroup/ondeck-check-$$
    nft "add table inet check; add chain inet check out { type filter hook output priority 0; };
        add rule inet check out socket cgroupv2 level 1 \"ondeck-check-$$\" accept"
    nft delete table inet check
    rmdir /sys/fs/cgroup/ondeck-check-$$
    echo ready
    exec cat
"#;

/// Starts the agent in a cgroup of its own, and again in another one when it has ended, as a service
/// does. The metadata service is where it is on EC2. `$0` is the cgroup of the test.
const SERVICE: &str = r#"
    unset AWS_EC2_METADATA_SERVICE_ENDPOINT
    starts=0
    while :; do
        starts=$((starts + 1))
        group=/sys/fs/cgroup/$0/start-$starts/ondeck-agent.service
        mkdir -p "$group"
        sh -c 'echo 0 >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
        sleep 0.2
    done
"#;

/// The network of an account that has one machine at a time.
pub(crate) struct Ec2Network {
    holder: Child,
    /// The name of the cgroup that all agents of the test are below.
    cgroup: String,
}

/// Where a process is that is neither an agent nor a job.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// A process of the machine, in no cgroup of the agent.
    Machine,
    /// A process in a container with a network of its own.
    Container,
}

impl Place {
    pub(crate) const ALL: [Place; 2] = [Place::Machine, Place::Container];
}

impl Ec2Network {
    /// Returns `None`, and says why, on a computer where it cannot be laid out.
    pub(crate) fn lay_out() -> Option<Ec2Network> {
        let mut holder = Command::new("unshare")
            .args(["--mount", "--net", "--", "sh", "-c", LAY_OUT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said == "ready\n" {
            let cgroup = format!("ondeck-test-{}", holder.id());
            return Some(Ec2Network { holder, cgroup });
        }
        let why = holder.wait_with_output().unwrap().stderr;
        let why = String::from_utf8_lossy(&why);
        not_applicable(&format!("namespaces, cgroup v2, iproute2 and nftables: {why}"));
        None
    }

    /// An account whose machines are on this network. Their agents are given this word for
    /// `metadata-firewall`, and this folder of programs in place of the computer's.
    pub(crate) fn account(&self, firewall: &str, path: Option<&Path>) -> AwsHarness {
        self.account_with(firewall, path, &[])
    }

    /// The same, with more variables for the agents.
    pub(crate) fn account_with(
        &self,
        firewall: &str,
        path: Option<&Path>,
        more: &[(&str, &str)],
    ) -> AwsHarness {
        let pid = self.holder.id().to_string();
        let service = ["nsenter", "--target", &pid, "--mount", "--net", "--", "sh", "-c", SERVICE];
        let agent = [&self.cgroup, env!("CARGO_BIN_EXE_ondeck"), "agent", "--backend", "aws", "-v"];
        let mut env = vec![("ONDECK_METADATA_FIREWALL".to_owned(), firewall.to_owned())];
        env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        env.extend(path.map(|path| ("PATH".to_owned(), path.display().to_string())));
        let harness = AwsHarness::where_machines_run(MachineCommand {
            program: "/usr/bin/env".into(),
            args: service.iter().chain(&agent).map(|&word| word.to_owned()).collect(),
            env,
        });
        let agents = address(harness.gateway.endpoint("agents").url());
        self.serve(&self.namespace("self"), agents, move || Some(agents));
        let ec2 = harness.gateway.ec2().clone();
        let metadata = move || {
            let machines = ec2.machines();
            let url = machines.iter().rev().find_map(|machine| machine.metadata.as_deref());
            url.map(address)
        };
        for at in ["169.254.169.254:80", "[fd00:ec2::254]:80"] {
            self.serve(&self.namespace("metadata"), at.parse().unwrap(), metadata.clone());
        }
        harness.set_up(&[]);
        harness
    }

    /// Whether a process there reaches the metadata service.
    pub(crate) fn reaches_metadata(&self, place: Place) -> bool {
        let namespace = match place {
            Place::Machine => self.namespace("self"),
            Place::Container => self.namespace("container"),
        };
        let net = format!("--net={}", namespace.display());
        let ondeck = env!("CARGO_BIN_EXE_ondeck");
        reached(Command::new("nsenter").args([&net, "--", ondeck, "probe-metadata"]))
    }

    /// Makes the cgroup of a service of the system. It is removed when the answer is dropped.
    pub(crate) fn make_service(&self, name: &str) -> SystemService {
        let folder = self.cgroups().join("system.slice").join(name);
        fs::create_dir_all(&folder).unwrap();
        SystemService(folder)
    }

    /// Whether a process of the service, on the machine, reaches the metadata service.
    pub(crate) fn service_reaches_metadata(&self, service: &SystemService) -> bool {
        let net = format!("--net={}", self.namespace("self").display());
        let enter = "echo 0 >\"$0/cgroup.procs\" && exec \"$@\"";
        let ondeck = env!("CARGO_BIN_EXE_ondeck");
        let mut probe = Command::new("sh");
        probe.args(["-c", enter]).arg(&service.0).args(["nsenter", &net, "--"]);
        reached(probe.args([ondeck, "probe-metadata"]))
    }

    /// Runs nft on the machine.
    pub(crate) fn nft(&self, args: &[&str]) -> String {
        let pid = self.holder.id().to_string();
        let output = Command::new("nsenter")
            .args(["--target", &pid, "--mount", "--net", "--", "nft"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The cgroup that the machine's rule admits.
    pub(crate) fn admitted(&self) -> String {
        let rules = self.nft(&["list", "table", "inet", "ondeck_metadata"]);
        let line = rules.lines().find(|line| line.contains("cgroupv2")).unwrap();
        line.split('"').nth(1).unwrap().to_owned()
    }

    /// The process in that cgroup.
    pub(crate) fn agent(&self) -> i32 {
        let file = self.cgroups().join(self.admitted()).join("cgroup.procs");
        let pids = fs::read_to_string(file).unwrap();
        pids.trim().parse().unwrap()
    }

    /// The root of the hierarchy of cgroups.
    fn cgroups(&self) -> PathBuf {
        Path::new("/proc").join(self.holder.id().to_string()).join("root/sys/fs/cgroup")
    }

    fn namespace(&self, host: &str) -> PathBuf {
        let process = Path::new("/proc").join(self.holder.id().to_string());
        match host {
            "self" => process.join("ns/net"),
            other => process.join("root/run/netns").join(other),
        }
    }

    /// Listens in a namespace, and passes each connection on to an address outside of it.
    fn serve(
        &self,
        namespace: &Path,
        at: SocketAddr,
        to: impl Fn() -> Option<SocketAddr> + Send + 'static,
    ) {
        let namespace = File::open(namespace).unwrap();
        // A thread of its own, because all its sockets are of the namespace from now on.
        let listener = std::thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            TcpListener::bind(at).unwrap()
        });
        let listener = listener.join().unwrap();
        std::thread::spawn(move || {
            for inner in listener.incoming() {
                let (Ok(inner), Some(to)) = (inner, to()) else { continue };
                if let Ok(outer) = TcpStream::connect(to) {
                    pass_on(&inner, &outer);
                }
            }
        });
    }
}

/// The cgroup of a service of the system.
pub(crate) struct SystemService(PathBuf);

impl Drop for SystemService {
    /// Removes what [`Ec2Network::make_service`] made. The slice stays if it has other services.
    fn drop(&mut self) {
        fs::remove_dir(&self.0).ok();
        self.0.parent().map(fs::remove_dir);
    }
}

/// Whether a process that tries to reach the metadata service does.
fn reached(probe: &mut Command) -> bool {
    let output = probe.output().unwrap();
    match output.status.code() {
        Some(0) => false,
        Some(1) => true,
        _ => panic!("{output:?}"),
    }
}

/// Copies both ways, beside the caller, until both sides have ended.
fn pass_on(inner: &TcpStream, outer: &TcpStream) {
    for (from, to) in [(inner, outer), (outer, inner)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || {
            // A side that has gone away is how a connection ends.
            io::copy(&mut from, &mut to).ok();
            to.shutdown(Shutdown::Write).ok();
        });
    }
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
}

impl Drop for Ec2Network {
    /// Removes the cgroups, which belong to the whole computer, and ends the process that holds the
    /// namespaces.
    fn drop(&mut self) {
        let cgroup = self.cgroups().join(&self.cgroup);
        let removed = within(Duration::from_secs(10), || {
            remove_cgroup(&cgroup);
            !cgroup.exists()
        });
        self.holder.kill().ok();
        self.holder.wait().unwrap();
        assert!(removed || std::thread::panicking(), "processes are left in {}", self.cgroup);
    }
}

/// Removes a cgroup and those below it, as far as they have no processes.
fn remove_cgroup(cgroup: &Path) {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for below in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
        remove_cgroup(&below);
    }
    fs::remove_dir(cgroup).ok();
}
