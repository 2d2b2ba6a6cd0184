#!/bin/sh
# Makes the image of `cargo xtask vm` in the folder $1: a Debian with systemd, cloud-init and a cloud
# kernel, prepared by the script that the guide to images recommends, which is prepare.sh in that folder.
# It trusts the certificates that are made here, and takes commands of root at its second serial port.
# It has no agent, no runner and no libicu, like a minimal image.
set -eu
umask 022
folder=$1
root=$folder/root
# As new as the oldest system that may build the programs which run in it.
suite=trixie
network_packages='ifupdown isc-dhcp-client iproute2'
# cloud-init fails without e2fsprogs and openssh-server: it resizes the disk and makes keys.
packages="systemd-sysv dbus udev linux-image-cloud-amd64 cloud-init e2fsprogs openssh-server
    $network_packages"

# A mount that is left would be deleted with the folder.
unmount() {
    for place in proc sys dev/pts dev; do
        ! mountpoint -q "$root/$place" || umount "$root/$place"
    done
}
trap unmount EXIT

echo 'certificates'
names='DNS:github.com,DNS:*.github.com,DNS:*.us-east-1.amazonaws.com'
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -subj '/CN=ondeck vm' -keyout "$folder/ca.key" -out "$folder/ca.pem" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj '/CN=ondeck vm server' \
    -keyout "$folder/server.key" -out "$folder/server.csr" 2>/dev/null
printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\n' "$names" >"$folder/server.ext"
openssl x509 -req -in "$folder/server.csr" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" \
    -CAcreateserial -days 3650 -extfile "$folder/server.ext" -out "$folder/server.pem" 2>/dev/null

echo 'base system'
debootstrap --variant=minbase "$suite" "$root" >"$folder/debootstrap.log" ||
    { tail -n 20 "$folder/debootstrap.log"; exit 1; }
for place in proc sys dev dev/pts; do
    mount --bind "/$place" "$root/$place"
done
# No service may start during the installation.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"

echo 'packages'
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive chroot "$root" sh -euc '
    apt-get -qq update
    apt-get -qq -o Acquire::Retries=3 install --yes --no-install-recommends "$@"
' sh $packages >"$folder/packages.log" 2>&1 || { tail -n 20 "$folder/packages.log"; exit 1; }

echo 'preparation'
place=$root/opt/prepare
mkdir "$place"
cp "$folder/prepare.sh" "$place/prepare.sh"
# An agent and a runner that only say their version, to see that they are installed and checked. The
# machine itself downloads both, so they are removed again.
mkdir -p "$place/runner/bin"
printf '#!/bin/sh\necho 2.336.0\n' >"$place/runner/bin/Runner.Listener"
printf '#!/bin/sh\nexit 1\n' >"$place/runner/config.sh"
printf '#!/bin/sh\necho ondeck 0.0.0\n' >"$place/agent"
chmod 755 "$place/agent" "$place/runner/config.sh" "$place/runner/bin/Runner.Listener"
tar -czf "$place/runner.tar.gz" -C "$place/runner" .
digest() {
    sha256sum "$place/$1" | cut -d ' ' -f 1
}
prepare() {
    chroot "$root" env "$@" AGENT_URL=file:///opt/prepare/agent RUNNER_URL=file:///opt/prepare/runner.tar.gz \
        RUNNER_SHA256="$(digest runner.tar.gz)" sh /opt/prepare/prepare.sh >"$folder/prepare.log" 2>&1
}
if prepare AGENT_SHA256="$(digest runner.tar.gz)" || [ -e "$root/usr/local/bin/ondeck" ]; then
    echo 'an agent with another digest was put on the image'
    exit 1
fi
# Twice, because it may be run again on a machine of the image.
for _ in 1 2; do
    prepare AGENT_SHA256="$(digest agent)" || { tail -n 20 "$folder/prepare.log"; exit 1; }
done
for made in usr/local/bin/ondeck opt/actions-runner/bin/Runner.Listener home/runner usr/sbin/nft; do
    [ -e "$root/$made" ] || { echo "the preparation has not made /$made"; exit 1; }
done
rm -rf "$root/usr/local/bin/ondeck" "$root/opt/actions-runner" "$place"
rm "$root/usr/sbin/policy-rc.d"

echo 'settings'
cp "$folder/ca.pem" "$root/usr/local/share/ca-certificates/ondeck-vm.crt"
chroot "$root" update-ca-certificates >/dev/null
printf '/dev/vda / ext4 defaults 0 1\n' >"$root/etc/fstab"
printf 'datasource_list: [ Ec2 ]\n' >"$root/etc/cloud/cloud.cfg.d/99_ec2.cfg"
: >"$root/etc/machine-id"
rm -f "$root/etc/resolv.conf"
cat >"$root/etc/systemd/system/look.service" <<'END'
[Unit]
Description=root shell for the test that boots this image

[Service]
ExecStart=/bin/sh -c 'stty -echo; echo ready; exec /bin/bash --noprofile --norc'
Restart=always
# An interactive shell ignores SIGTERM, and would delay the power-off by 90 s.
KillSignal=SIGKILL
StandardInput=tty
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1
TTYReset=yes

[Install]
WantedBy=multi-user.target
END
chroot "$root" systemctl --quiet enable look.service

echo 'disk'
unmount
cp "$root"/boot/vmlinuz-* "$folder/kernel"
cp "$root"/boot/initrd.img-* "$folder/initrd"
mke2fs -q -t ext4 -L root -d "$root" "$folder/disk.raw" 3G
rm -rf --one-file-system "$root"
