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
    why="this machine was given to run $run and takes no job of another: ${GITHUB_RUN_ID:-unknown}"
    hint="hint: use runs-on: \${{ github.run_id }}"
    # Steps with `if: always()` would run in spite of the error, so the worker is killed. It uploads
    # no log then, and the listener shows what the worker has written to its own stderr.
    if IFS= read -r parent <"/proc/$PPID/comm" && [ "$parent" = Runner.Worker ]; then
        printf '%s\n%s\n' "$why" "$hint" >"/proc/$PPID/fd/2" || :
        kill -s KILL "$PPID"
    fi
    echo "::error title=not this run's machine::$why"
    echo "$hint"
    exit 1
fi

note started
exec sh "$here/operator.sh" started
