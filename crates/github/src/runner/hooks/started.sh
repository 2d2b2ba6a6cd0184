#!/bin/sh
# Called by the runner before the first step of each job, as the user that jobs run as.
#
# Only jobs of the run that this machine was given to may run: any author of a workflow can write
# any label into it.

here=${0%/*}
notes=$here/../notes/jobs

# An idle machine may get a job before its agent has named the run that owns it. A line that does not
# end counts as none.
end=
until IFS= read -r run 2>/dev/null <"$here/run"; do
    run=
    now=$(date +%s)
    end=${end:-$((now + 10))}
    [ "$now" -lt "$end" ] || break
    sleep 0.1
done

note() {
    printf '%s %s %s %s %s\n' "$1" "$(date +%s%3N)" "${GITHUB_RUN_ID:--}" \
        "${GITHUB_RUN_ATTEMPT:--}" "${GITHUB_JOB:--}" >>"$notes" || :
}

if [ -z "$run" ] || [ "${GITHUB_RUN_ID:-}" != "$run" ]; then
    note refused
    given="run $run and takes no job of another"
    [ -n "$run" ] || given="no run yet and takes no job"
    why="this machine was given to $given: ${GITHUB_RUN_ID:-unknown}"
    hint="hint: use the output label of provision in runs-on, or an entry of its output labels"
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

# A listener that was started before the run was known does not have it.
if [ -z "${ONDECK_RUN_ID:-}" ] && [ -n "${GITHUB_ENV:-}" ]; then
    printf 'ONDECK_RUN_ID=%s\n' "$run" >>"$GITHUB_ENV" || :
fi

note started
exec sh "$here/operator.sh" started
