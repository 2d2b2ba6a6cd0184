#!/bin/sh
# The first start of a machine of ondeck: gets the agent, checks it, and runs it as a service.
# Any failure ends the machine, so that a machine that cannot be used costs nothing.
set -eu
umask 022

# (values)

agent=/usr/local/bin/ondeck

# Assignments without spaces, for everything that this script starts.
# shellcheck disable=SC2086,SC2163
[ -z "$proxies" ] || export $proxies

say() {
    echo "ondeck: $*"
    echo "ondeck: $*" >/dev/console 2>/dev/null || :
}

# The machine is gone a minute later and its files with it: the console is what remains.
give_up() {
    status=$?
    trap - EXIT
    [ "$status" -eq 0 ] && exit 0
    say "this machine cannot be used and ends: ${why:-a command failed with status $status}"
    sync
    shutdown -h now || systemctl poweroff --force || poweroff -f
    exit "$status"
}
trap give_up EXIT

fail() {
    why=$*
    exit 1
}

case $(uname -m) in
x86_64 | amd64) arch=x86-64 suffix='' url=$url_x86_64 sha256=$sha256_x86_64 ;;
aarch64 | arm64) arch=arm64 suffix=-arm64 url=$url_arm64 sha256=$sha256_arm64 ;;
*) fail "there is no agent for this processor: $(uname -m)" ;;
esac

right() {
    [ -f "$1" ] && { [ -z "$sha256" ] || echo "$sha256  $1" | sha256sum -c - >/dev/null 2>&1; }
}

fetch() {
    case $url in
    s3://*) AWS_DEFAULT_REGION=$region timeout 60 aws s3 cp --only-show-errors "$url" "$1" ;;
    *) curl --fail --silent --show-error --location --proto '=https' \
        --connect-timeout 5 --max-time 60 --output "$1" "$url" ;;
    esac
}

if ! right "$agent"; then
    [ -n "$url" ] || fail "no agent at $agent, and no agent-url$suffix to get one from for $arch"
    case $url in
    s3://*)
        command -v aws >/dev/null ||
            fail "the image has no aws program, which an agent-url on S3 needs: $url"
        ;;
    *) ;;
    esac
    new=$(mktemp)
    tries=1
    until fetch "$new"; do
        [ "$tries" -lt 5 ] || fail "the agent could not be fetched: $url"
        say "the agent could not be fetched, will try again: $url"
        sleep "$tries"
        tries=$((tries + 1))
    done
    right "$new" || fail "the agent is not the one that was asked for: $(sha256sum "$new")"
    mkdir -p "${agent%/*}"
    # On an image made from a pool's machine an agent is running by now, and a program that runs
    # can be replaced, but not written to.
    cp "$new" "$agent.new"
    chmod 755 "$agent.new"
    mv -f "$agent.new" "$agent"
    rm "$new"
fi
[ -x "$agent" ] || chmod 755 "$agent"
# One that does not run here would be started 30 times before the machine ends, without a reason.
runs=$(timeout 20 "$agent" --version 2>&1) || fail "the agent does not run on $arch: $agent: $runs"
say "agent: $runs"

# The agent keeps jobs from the metadata service by a rule of nftables. If it cannot be installed
# here, the agent reports what is missing.
if [ "$firewall" = on ] && ! command -v nft >/dev/null; then
    say "the image has no nft: installing the package nftables"
    if command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        timeout 60 apt-get -qq update || :
        timeout 120 apt-get -qq -o DPkg::Lock::Timeout=60 \
            install --yes --no-install-recommends nftables || say "nftables could not be installed"
    elif command -v dnf >/dev/null; then
        timeout 120 dnf --quiet --assumeyes install nftables ||
            say "nftables could not be installed"
    fi
fi

# The operator's script may name the user that jobs run as. If it cannot be created here, the agent
# tries again and reports why.
id -u "$user" >/dev/null 2>&1 || useradd -m -s /bin/bash -- "$user" ||
    say "the user could not be created: $user"

mkdir -p /etc/ondeck
cat >/etc/ondeck/agent.env <<END
ONDECK_POOL=$pool
ONDECK_AWS_REGION=$region
ONDECK_HOME=/var/lib/ondeck
ONDECK_METADATA_FIREWALL=$firewall
ONDECK_MACHINE_LOGS=$logs
ONDECK_CONNECT=$connect
ONDECK_OWN_MACHINE=true
END
# shellcheck disable=SC2086
[ -z "$proxies" ] || printf '%s\n' $proxies >>/etc/ondeck/agent.env

# An agent that keeps failing cannot end its machine; then StartLimitAction does. The processes of
# jobs belong to this service too: one that is killed for lack of memory must not stop the others,
# and limits on tasks and files would protect no other service. The agent makes cgroups below its
# own, one for itself and one for jobs; Delegate leaves these to it.
cat >/etc/systemd/system/ondeck-agent.service <<END
[Unit]
Description=ondeck agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=600
StartLimitBurst=30
StartLimitAction=poweroff

[Service]
Environment=HOME=/root
EnvironmentFile=/etc/ondeck/agent.env
ExecStart=$agent agent --backend aws
Restart=always
RestartSec=2
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=65536:524288
Delegate=yes
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy=multi-user.target
END

systemctl daemon-reload || fail "systemd does not answer"
# One that came with the image may run already, as that of another pool.
{ systemctl enable ondeck-agent.service && systemctl restart ondeck-agent.service; } ||
    fail "the agent's service does not start"
say "the agent has been started"
