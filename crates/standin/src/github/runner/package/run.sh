#!/bin/bash
# Starts the listener, again and again as long as that may help.
folder=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)

plain() {
    while :; do
        cp -f "$folder/run-helper.sh.template" "$folder/run-helper.sh"
        "$folder/run-helper.sh" "$@"
        code=$?
        if [[ $code == 7 && $ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE == 1 ]]; then
            echo "Exiting runner with deprecated version error code: $code"
            exit "$code"
        elif [[ $code != 2 ]]; then
            echo "Exiting runner..."
            exit 0
        fi
        echo "Restarting runner..."
    done
}

trapping() {
    # With job control the helper has a process group of its own, which signals are passed on to.
    set -m
    signaled=0
    trap 'kill -INT -"$helper"; signaled=1' INT TERM
    while :; do
        cp -f "$folder/run-helper.sh.template" "$folder/run-helper.sh"
        "$folder/run-helper.sh" "$@" &
        helper=$!
        wait "$helper"
        code=$?
        if [[ $signaled == 1 ]]; then
            wait "$helper"
            code=$?
        fi
        if [[ $code != 2 ]]; then
            echo "Exiting runner..."
            trap - INT TERM
            exit "$code"
        fi
        echo "Restarting runner..."
    done
}

if [[ -z $RUNNER_MANUALLY_TRAP_SIG ]]; then
    plain "$@"
else
    trapping "$@"
fi
