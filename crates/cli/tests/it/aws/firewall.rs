//! Jobs and the metadata service: the real agent, and the kernel's own rules.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::process::Signal;

use super::ec2_network::{Ec2Network, Place};
use super::harness::AwsHarness;
use crate::harness::{Background, Done, Driven, signal, until};

/// A job that tries to reach the metadata service: exits with 1 if it does. It runs as root, because
/// jobs of the local forge run as the agent's user.
const TRY: [&str; 2] = [env!("CARGO_BIN_EXE_ondeck"), "probe-metadata"];

/// Runs a job of a run and returns what came of it.
fn job(harness: &AwsHarness, run: &str, command: &[&str]) -> Done {
    let run = format!("--run-id={run}");
    let arguments = [&["run", &run, "--queue-timeout-sec=20", "--"], command].concat();
    Background::start(&mut harness.command(&arguments)).finish()
}

#[test]
fn only_the_agent_reaches_the_metadata_service() {
    let Some(network) = Ec2Network::lay_out() else { return };
    let harness = network.account("on", None);
    for place in Place::ALL {
        assert!(network.reaches_metadata(place), "no agent has loaded the rule yet: {place:?}");
    }
    // The agent has its identity and its keys from the metadata service.
    let machines = harness.provision("1", 1).succeeded().ids();
    job(&harness, "1", &TRY).succeeded();
    for place in Place::ALL {
        assert!(!network.reaches_metadata(place), "{place:?}");
    }
    let in_cgroup = job(&harness, "1", &["cat", "/proc/self/cgroup"]).succeeded().stdout;
    assert!(in_cgroup.contains("/start-1/ondeck-agent.service/jobs\n"), "{in_cgroup}");
    harness.release("1").succeeded();

    // The service starts a new agent, in another cgroup.
    let first = network.admitted();
    assert!(first.ends_with("/start-1/ondeck-agent.service/agent"), "{first}");
    signal(network.agent(), Signal::KILL);
    until("the rule admits the new agent", || network.admitted() != first);
    let second = network.admitted();
    assert!(second.ends_with("/start-2/ondeck-agent.service/agent"), "{second}");
    let again = harness.provision("2", 1).succeeded();
    assert_eq!((again.ids(), again.sources()), (machines, vec!["warm".to_owned()]));
    job(&harness, "2", &TRY).succeeded();
    for place in Place::ALL {
        assert!(!network.reaches_metadata(place), "{place:?}");
    }
    harness.release("2").succeeded();
    assert_eq!(harness.standings(), ["idle"]);
}

#[test]
fn a_machine_is_retired_if_a_job_has_touched_the_rule() {
    let Some(network) = Ec2Network::lay_out() else { return };
    let harness = network.account("on", None);
    for (run, tamper, words) in [
        ("1", "nft delete table inet ondeck_metadata", "was removed"),
        ("2", "nft flush ruleset", "was removed"),
        ("3", "nft insert rule inet ondeck_metadata agent_only accept", "was changed"),
        ("4", "nft flush chain inet ondeck_metadata output", "was changed"),
        ("5", "nft add table inet ondeck_metadata '{ flags dormant; }'", "was changed"),
    ] {
        let machines = harness.provision(run, 1).succeeded();
        assert_eq!(machines.sources(), ["cold"], "the one before was not pooled: {tamper}");
        job(&harness, run, &["sh", "-c", tamper]).succeeded();
        harness.release(run);
        harness.until_machines(0);
        let log = harness.logs().join(format!("{}.log", machines.ids()[0]));
        let log = fs::read_to_string(log).unwrap();
        let why = format!(
            "the machine is not clean: the rule that keeps jobs from the metadata service {words}"
        );
        assert!(log.contains(&why), "{tamper}: {log}");
    }
}

#[test]
fn a_machine_without_nft_is_not_ready_unless_the_operator_permits_it() {
    let Some(network) = Ec2Network::lay_out() else { return };
    // The programs that the machine of this test needs, and no other.
    let programs = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for program in ["cat", "mkdir", "nsenter", "sh", "sleep", "touch"] {
        let mut found = std::env::split_paths(&path).map(|folder| folder.join(program));
        symlink(found.find(|file| file.exists()).unwrap(), programs.path().join(program)).unwrap();
    }
    let harness = network.account("on", Some(programs.path()));
    let refused = harness.provision("1", 1).exited(5);
    let why = "jobs cannot be kept from the metadata service: nft is not on this machine: install \
               the package nftables on the image; metadata-firewall=off permits that";
    assert!(format!("{}{}", refused.stdout, refused.stderr).contains(why), "{refused:?}");
    harness.until_machines(0);
    drop(harness);

    let Some(network) = Ec2Network::lay_out() else { return };
    let harness = network.account("off", Some(programs.path()));
    harness.provision("1", 1).succeeded();
    let reached = job(&harness, "1", &TRY).exited(1);
    assert_eq!(reached.stdout, "169.254.169.254\n");
    harness.release("1").succeeded();
    assert_eq!(harness.standings(), ["idle"]);
    assert_eq!(network.nft(&["list", "ruleset"]), "");
}

#[test]
fn the_ssm_agent_is_admitted_where_operators_connect() {
    let Some(network) = Ec2Network::lay_out() else { return };
    let service = network.make_service("amazon-ssm-agent.service");
    let harness = network.account_with("on", None, &[("ONDECK_CONNECT", "ssm")]);
    let machines = harness.provision("1", 1).succeeded().ids();
    assert!(network.service_reaches_metadata(&service), "it cannot open a session without keys");
    job(&harness, "1", &TRY).succeeded();
    for place in Place::ALL {
        assert!(!network.reaches_metadata(place), "{place:?}");
    }
    // Its own updates restart it, in a cgroup that has the same name and is another one.
    drop(service);
    let service = network.make_service("amazon-ssm-agent.service");
    assert!(!network.service_reaches_metadata(&service), "the rule names the earlier cgroup");
    harness.release("1").succeeded();
    let again = harness.provision("2", 1).succeeded();
    assert_eq!((again.ids(), again.sources()), (machines, vec!["warm".to_owned()]));
    assert!(network.service_reaches_metadata(&service), "the rule was loaded again");

    let tamper = "nft insert rule inet ondeck_metadata agent_only accept";
    job(&harness, "2", &["sh", "-c", tamper]).succeeded();
    harness.release("2");
    harness.until_machines(0);
}
