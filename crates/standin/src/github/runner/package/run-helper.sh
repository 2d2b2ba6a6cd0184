#!/bin/bash
# Runs the listener once, and says what its end means for run.sh.
if [[ $(id -u) == 0 && -z $RUNNER_ALLOW_RUNASROOT ]]; then
    echo "Must not run interactively with sudo"
    exit 1
fi
folder=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$folder/bin/Runner.Listener" run "$@"
code=$?
if [[ $code == 7 && $ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE == 1 ]]; then
    echo "Runner listener exit with deprecated version exit code: $code."
    exit "$code"
fi
case $code in
    0) echo "Runner listener exit with 0 return code, stop the service, no retry needed." ;;
    1) echo "Runner listener exit with terminated error, stop the service, no retry needed." ;;
    2)
        echo "Runner listener exit with retryable error, re-launch runner in 5 seconds."
        "$folder/restart-pause.sh"
        exit 2
        ;;
    5) echo "Runner listener exit with Session Conflict error, stop the service, no retry needed." ;;
    *) echo "Exiting with unknown error code: $code" ;;
esac
exit 0
