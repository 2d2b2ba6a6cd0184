#!/bin/sh
# Called by the runner after the last step of each job, as the user that jobs run as.

here=${0%/*}
printf '%s %s %s %s %s\n' completed "$(date +%s%3N)" "${GITHUB_RUN_ID:--}" \
    "${GITHUB_RUN_ATTEMPT:--}" "${GITHUB_JOB:--}" >>"$here/../notes/jobs" || :

if [ -r "$here/end" ]; then
    IFS= read -r why <"$here/end"
    echo "::warning title=this machine takes no further job::$why"
fi

exec sh "$here/operator.sh" completed
