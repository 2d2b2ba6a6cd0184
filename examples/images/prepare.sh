#!/bin/sh
# Turns a running machine into one whose image ondeck's machines can start from: Ubuntu 24.04, Debian,
# or Amazon Linux 2023. Run it as root, then make an image of the machine.
#
#   AGENT_URL, AGENT_SHA256     the agent to put on the image; without a URL, machines download it
#   RUNNER_URL, RUNNER_SHA256   the package of actions/runner, likewise
#   PACKAGES                    more packages that jobs need, by their names on this system
#   DOCKER                      "yes" installs Docker
set -eu
umask 022
: "${AGENT_URL:=}" "${AGENT_SHA256:=}" "${RUNNER_URL:=}" "${RUNNER_SHA256:=}"
: "${PACKAGES:=}" "${DOCKER:=}"

fail() {
    echo "prepare: $*" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || fail 'only root can prepare a machine'

# nftables keeps jobs from the metadata service; actions/runner needs tar and gzip; most jobs need git.
if command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    [ "$DOCKER" != yes ] || PACKAGES="$PACKAGES docker.io"
    apt-get -qq update
    # shellcheck disable=SC2086
    apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 install --yes \
        --no-install-recommends ca-certificates curl git gzip nftables procps tar $PACKAGES
elif command -v dnf >/dev/null; then
    [ "$DOCKER" != yes ] || PACKAGES="$PACKAGES docker"
    # Amazon Linux has a curl already, which another package of that name would replace.
    command -v curl >/dev/null || PACKAGES="$PACKAGES curl-minimal"
    # shellcheck disable=SC2086
    dnf --quiet --assumeyes install ca-certificates git gzip nftables procps-ng shadow-utils tar \
        $PACKAGES
else
    fail 'neither apt-get nor dnf is here'
fi
command -v systemctl >/dev/null || fail 'ondeck needs systemd'

# The user that jobs run as, unless runner-user names another one.
id -u runner >/dev/null 2>&1 || useradd --create-home --shell /bin/bash runner

# Fetches $1 to $2, and checks its digest $3.
fetch() {
    [ -n "$3" ] || fail "no digest for $1"
    curl --fail --silent --show-error --location --retry 3 --connect-timeout 10 --max-time 300 \
        --output "$2" "$1" || fail "cannot fetch $1"
    echo "$3  $2" | sha256sum --check --status || fail "has another digest: $1"
}

if [ -n "$AGENT_URL" ]; then
    fetch "$AGENT_URL" /usr/local/bin/ondeck.new "$AGENT_SHA256"
    chmod 755 /usr/local/bin/ondeck.new
    /usr/local/bin/ondeck.new --version || fail "does not run here: $AGENT_URL"
    mv -f /usr/local/bin/ondeck.new /usr/local/bin/ondeck
fi

# The agent copies the runner for jobs, so this folder stays as it is.
if [ -n "$RUNNER_URL" ]; then
    package=$(mktemp)
    fetch "$RUNNER_URL" "$package" "$RUNNER_SHA256"
    rm -rf /opt/actions-runner
    mkdir -p /opt/actions-runner
    tar -xzf "$package" --no-same-owner -C /opt/actions-runner
    rm "$package"
    # Without libicu this fails, and the agent sets the runner to do without it.
    DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 /opt/actions-runner/bin/Runner.Listener --version ||
        fail "does not run here: $RUNNER_URL"
fi

# What this machine is must not become what the machines of the image are.
systemctl disable ondeck-agent.service >/dev/null 2>&1 || :
rm -rf /etc/systemd/system/ondeck-agent.service /etc/ondeck /var/lib/ondeck
! command -v cloud-init >/dev/null || cloud-init clean --logs
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
: >/etc/machine-id
if command -v apt-get >/dev/null; then
    apt-get clean
    rm -rf /var/lib/apt/lists/*
else
    dnf --quiet clean all
fi
sync
echo 'prepare: this machine is ready for its image'
