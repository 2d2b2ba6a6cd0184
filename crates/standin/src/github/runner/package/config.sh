#!/bin/bash
# Configures the runner, or removes it.
if [[ $(id -u) == 0 && -z $RUNNER_ALLOW_RUNASROOT ]]; then
    echo "Must not run with sudo"
    exit 1
fi
cd -P "$(dirname "${BASH_SOURCE[0]}")" || exit 1
source ./env.sh
shopt -s nocasematch
[[ $1 == remove ]] || set -- configure "$@"
exec ./bin/Runner.Listener "$@"
