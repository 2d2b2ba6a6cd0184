//! A machine of the stand-in's EC2: a virtual machine in the place of a process.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ondeck_standin::MACHINE_MAC;

use crate::MachineArguments;
use crate::console::{say, wait};
use crate::network::{METADATA, TAP};

/// The variables that the stand-in's EC2 sets for a machine's command.
const METADATA_URL: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
const SHUTDOWN_COMMAND: &str = "ONDECK_SHUTDOWN_COMMAND";
const INSTANCE_ID: &str = "ONDECK_STANDIN_INSTANCE";

/// Large enough for systemd, cloud-init, an agent and a job.
const MEMORY: &str = "1024";
/// cloud-init takes a machine for one of EC2 by these: the serial number is the UUID and begins with
/// `ec2`.
const UUID: &str = "ec2e1916-9099-7caf-fd21-012345abcdef";

/// The socket at the guest's second serial port, where it runs commands of root.
pub(crate) fn shell_of(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.sock"))
}

/// Boots the guest, plays its metadata service, and tells EC2 when it has powered off. The console
/// goes to stdout.
pub(crate) fn live(arguments: &MachineArguments) -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let (metadata, id) = (variable(METADATA_URL)?, variable(INSTANCE_ID)?);
    play_metadata(metadata.trim_start_matches("http://"))?;
    let mut qemu = qemu(arguments, &shell_of(&arguments.folder, &id));
    let ended = qemu.status().map_err(|error| format!("cannot run qemu: {error}"))?;
    if !ended.success() {
        return Err(format!("qemu has failed: {ended}"));
    }
    let shutdown = variable(SHUTDOWN_COMMAND)?;
    match Command::new("sh").args(["-c", &shutdown]).status() {
        Ok(told) if told.success() => Ok(()),
        other => Err(format!("EC2 does not know that the machine is off: {other:?}")),
    }
}

fn qemu(arguments: &MachineArguments, shell: &Path) -> Command {
    let MachineArguments { image, kvm, .. } = arguments;
    let in_image = |name: &str| image.join(name).display().to_string();
    let mut qemu = bare(*kvm);
    qemu.args(["-kernel", &in_image("kernel"), "-initrd", &in_image("initrd"), "-append"])
        .arg("root=/dev/vda rw console=tty0 console=ttyS0,115200")
        .args([
            "-drive",
            &format!("file={},format=raw,if=virtio,snapshot=on", in_image("disk.raw")),
        ])
        .args(["-netdev", &format!("tap,id=net,ifname={TAP},script=no,downscript=no")])
        .args(["-device", &format!("virtio-net-pci,netdev=net,mac={MACHINE_MAC},romfile=")])
        .args(["-device", "virtio-rng-pci"])
        .args(["-smbios", &format!("type=1,manufacturer=Amazon EC2,serial={UUID},uuid={UUID}")])
        .args(["-serial", "stdio", "-chardev"])
        .arg(format!("socket,id=shell,path={},server=on,wait=off", shell.display()))
        .args(["-serial", "chardev:shell"])
        .stdin(Stdio::null());
    qemu
}

/// A virtual machine without devices.
fn bare(kvm: bool) -> Command {
    let mut qemu = Command::new("qemu-system-x86_64");
    if kvm {
        qemu.args(["-accel", "kvm", "-cpu", "host"]);
    } else {
        // qemu 7.2 spoils the flags after some `cmpxchg16b`, and Linux 6.12 panics then. Linux does
        // without the instruction where there is none.
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "Westmere,cx16=off"]);
    }
    qemu.args(["-machine", "q35", "-smp", "2", "-m", MEMORY, "-nodefaults", "-no-user-config"])
        .args(["-display", "none", "-monitor", "none", "-no-reboot"]);
    qemu
}

/// Whether a guest runs on the processor. Within a virtual machine `/dev/kvm` may be there, and a guest
/// of it fail or hang all the same, so the kernel of the image is started and has to print something.
pub(crate) fn kvm_works(image: &Path, folder: &Path) -> bool {
    const LIMIT: Duration = Duration::from_secs(15);
    if File::open("/dev/kvm").is_err() {
        return false;
    }
    let log = folder.join("kvm.log");
    let Ok(file) = File::create(&log) else { return false };
    let mut qemu = bare(true);
    qemu.arg("-kernel").arg(image.join("kernel")).args(["-append", "console=ttyS0 panic=-1"]);
    qemu.args(["-serial", "stdio"]).stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
    let Ok(mut process) = qemu.spawn() else { return false };
    let speaks =
        || std::fs::read(&log).is_ok_and(|text| text.windows(13).any(|w| w == b"Linux version"));
    let mut ended = false;
    let answered = wait("a word of the kernel", LIMIT, || {
        ended = process.try_wait().is_ok_and(|status| status.is_some());
        (speaks() || ended).then_some(())
    });
    // It has ended already, or is not needed any more.
    process.kill().ok();
    process.wait().ok();
    answered.is_ok() && speaks()
}

/// Forwards the address of the metadata service to the one that EC2 has started for this machine.
fn play_metadata(at: &str) -> Result<(), String> {
    let place = format!("{METADATA}:80");
    let listener = TcpListener::bind(&place)
        .map_err(|error| format!("another machine is running, or there is no {place}: {error}"))?;
    let at = at.to_owned();
    std::thread::spawn(move || {
        for guest in listener.incoming().flatten() {
            let at = at.clone();
            std::thread::spawn(move || {
                if let Err(error) = forward(&guest, &at) {
                    say(&format!("metadata service: {error}"));
                }
            });
        }
    });
    Ok(())
}

fn forward(guest: &TcpStream, at: &str) -> io::Result<()> {
    let service = TcpStream::connect(at)?;
    let (to, from) = (service.try_clone()?, guest.try_clone()?);
    let asking = std::thread::spawn(move || copy(from, &to));
    copy(service, guest);
    asking.join().map_err(|_| io::Error::other("a thread has failed"))
}

/// Copies until either side is closed. A guest that hangs up is no error.
fn copy(mut from: TcpStream, mut to: &TcpStream) {
    let mut buffer = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if io::Write::write_all(&mut to, &buffer[..count]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Write).ok();
}
