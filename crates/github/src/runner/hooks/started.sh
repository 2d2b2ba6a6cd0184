#!/bin/sh
# Called by the runner before the first step of each job, as the user that jobs run as.
#
# Only jobs of the run that this machine was given to may run: any author of a workflow can write
# any label into it.

here=${0%/*}
notes=$here/../notes/jobs
IFS= read -r run <"$here/run"

note() {
    printf '%s %s %s %s %s\n' "$1" "$(date +%s%3N)" "${GITHUB_RUN_ID:--}" \
        "${GITHUB_RUN_ATTEMPT:--}" "${GITHUB_JOB:--}" >>"$notes" || :
}

if [ "${GITHUB_RUN_ID:-}" != "$run" ]; then
    note refused
    echo "::error title=not this run's machine::this machine was given to run $run and takes" \
        "no job of another: ${GITHUB_RUN_ID:-unknown}"
    echo "hint: use runs-on: \${{ github.run_id }}"
    # Steps with `if: always()` would run in spite of the error, so the worker is killed. The pause
    # lets the message above be sent first.
    if IFS= read -r parent <"/proc/$PPID/comm" && [ "$parent" = Runner.Worker ]; then
        sleep 3
        kill -s KILL "$PPID"
    fi
    exit 1
fi

note started
if [ -r "$here/operator-started" ]; then
    IFS= read -r hook <"$here/operator-started"
    case $hook in
    *.ps1) exec pwsh -command ". '$hook'" ;;
    *) exec bash -e "$hook" ;;
    esac
fi
