//! The network of the story: the host's side of the machine's cable, with DHCP, names and TLS.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The host's end of the guest's network.
pub(crate) const TAP: &str = "tap0";
/// The address of the host, which stands for AWS and GitHub.
const HOST: &str = "10.77.0.1";
/// The addresses for guests. cloud-init asks for one at an early stage, and the system for another one.
const GUESTS: &str = "10.77.0.10,10.77.0.50";
/// The address of the metadata service.
pub(crate) const METADATA: &str = "169.254.169.254";
/// The names that lead to the host.
const NAMES: [&str; 2] = ["github.com", "us-east-1.amazonaws.com"];

/// DHCP, names and TLS, until this is dropped.
#[derive(Debug)]
pub(crate) struct Network(Vec<Child>);

impl Drop for Network {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It has ended already otherwise.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Network {
    /// Sets up the network of this namespace. Requests for AWS are passed to `aws`, those for GitHub
    /// to `github`; both are URLs on loopback.
    pub(crate) fn start(
        image: &Path,
        folder: &Path,
        aws: &str,
        github: &str,
    ) -> Result<Network, String> {
        for line in [
            format!("tuntap add {TAP} mode tap"),
            format!("address add {HOST}/24 dev {TAP}"),
            format!("address add {METADATA}/32 dev {TAP}"),
            format!("link set {TAP} up"),
        ] {
            run(Command::new("ip").args(line.split(' ')))?;
        }
        name_the_host(folder)?;
        let log = |name: &str| {
            let path = folder.join(name);
            fs::File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut network = Network(Vec::new());
        let mut dnsmasq = Command::new("dnsmasq");
        dnsmasq.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
        ]);
        dnsmasq.args(["--user=root", "--pid-file=", "--bind-interfaces", "--log-facility=-"]);
        dnsmasq.arg(format!("--interface={TAP}")).arg(format!("--dhcp-range={GUESTS},1h"));
        dnsmasq.args([format!("--dhcp-option=3,{HOST}"), format!("--dhcp-option=6,{HOST}")]);
        dnsmasq.arg(format!("--dhcp-leasefile={}", folder.join("leases").display()));
        dnsmasq.args(NAMES.map(|name| format!("--address=/{name}/{HOST}")));
        network.keep(dnsmasq.stderr(log("dnsmasq.log")?))?;
        let settings = folder.join("stunnel.conf");
        let text = tls(image, aws, github);
        fs::write(&settings, text).map_err(|error| format!("{}: {error}", settings.display()))?;
        network.keep(Command::new("stunnel4").arg(&settings).stderr(log("stunnel.log")?))?;
        Ok(network)
    }

    fn keep(&mut self, command: &mut Command) -> Result<(), String> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let name = command.get_program().display().to_string();
        self.0.push(child.map_err(|error| format!("cannot run {name}: {error}"))?);
        Ok(())
    }
}

/// Lets the programs of this namespace find GitHub under its own name.
fn name_the_host(folder: &Path) -> Result<(), String> {
    let hosts = folder.join("hosts");
    let text = format!("127.0.0.1 localhost\n{HOST} github.com api.github.com\n");
    fs::write(&hosts, text).map_err(|error| format!("{}: {error}", hosts.display()))?;
    run(Command::new("mount").arg("--bind").arg(&hosts).arg("/etc/hosts"))
}

/// The settings of the program that ends TLS: all names are AWS's but for those of GitHub.
fn tls(image: &Path, aws: &str, github: &str) -> String {
    let place = |url: &str| url.trim_start_matches("http://").to_owned();
    let (aws, github) = (place(aws), place(github));
    let image = image.display();
    format!(
        "foreground = yes\npid =\nsyslog = no\ncert = {image}/server.pem\nkey = {image}/server.key\n\
         [aws]\naccept = {HOST}:443\nconnect = {aws}\n\
         [github]\nsni = aws:github.com\nconnect = {github}\n\
         [api]\nsni = aws:api.github.com\nconnect = {github}\n"
    )
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {command:?}: {}", output.status, said.trim_end()))
}
