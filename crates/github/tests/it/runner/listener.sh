#!/bin/bash
# Behaves like bin/Runner.Listener towards the agent. GitHub is a folder here: a list of runners,
# queued jobs, and faults to inject.
github=@GITHUB@
root=$(cd "$(dirname "$0")/.." && pwd)

# The real listener first lists every folder above it, and exits if it may not.
above=$root
until [ "$above" = / ]; do
    if [ ! -r "$above" ]; then
        echo "An error occurred: Permission to read the directory contents is required for" \
            "'$root' and each directory up the hierarchy. Access to '$above' is denied." >&2
        exit 1
    fi
    above=$(dirname "$above")
done

fault() { [ -e "$github/faults/$1" ]; }

say() { echo "$(date -u '+%F %TZ'): $*"; }

# Without libicu, .NET aborts, unless the program is set to do without it.
invariant='"System.Globalization.Invariant": true'
if fault no-icu && ! grep -qF "$invariant" "$root/bin/Runner.Listener.runtimeconfig.json"; then
    echo "Process terminated. Couldn't find a valid ICU package installed on the system." \
        "Please install libicu using your package manager and try again." >&2
    exit 134
fi
if fault no-start; then
    echo "error while loading shared libraries: libssl.so: cannot open shared object file" >&2
    exit 127
fi

configure() {
    local name labels url
    echo "configure $*" >>"$github/log"
    if [ -e "$root/.runner" ]; then
        echo "Cannot configure the runner because it is already configured." >&2
        exit 1
    fi
    while [ $# -gt 0 ]; do
        case $1 in
        --name) name=$2 ;;
        --labels) labels=$2 ;;
        --url) url=$2 ;;
        esac
        shift
    done
    fault hang && sleep 300
    if fault wait; then
        touch "$github/waiting"
        until [ -e "$github/go" ]; do sleep 0.02; done
    fi
    if [ "$ACTIONS_RUNNER_INPUT_TOKEN" != "$(cat "$github/registration-token")" ]; then
        echo "Http response code: NotFound from 'POST $url/runner-registration'" >&2
        echo "the token was $ACTIONS_RUNNER_INPUT_TOKEN" >&2
        fault talk && cat "$github/faults/talk" >&2
        exit 1
    fi
    echo "$labels" >"$github/list/$name"
    printf '%s\n%s\n' "$name" "$url" >"$root/.runner"
    echo "credentials" >"$root/.credentials"
    echo "key" >"$root/.credentials_rsaparams"
    echo "service" >"$root/svc.sh"
    echo "√ Runner successfully added"
}

# Reports an answer of GitHub as the real runner does, after each attempt.
report() {
    echo "Http response code: $2 from '$1' (Request Id: 1)" >&2
    echo "$3" >&2
}

# Reports the last answer of GitHub to a removal, and exits.
refuse() {
    report "$1" "$2" "$4"
    echo "Failed: Removing runner from the server" >&2
    echo "Response status code does not indicate success: $3." >&2
    exit 1
}

remove() {
    local name url
    if [ ! -e "$root/.runner" ] || [ ! -e "$root/.credentials" ]; then
        echo "Cannot connect to server, because config files are missing. Skipping removing" \
            "runner from the server."
        rm -f "$root"/.runner "$root"/.credentials*
        return
    fi
    { read -r name; read -r url; } <"$root/.runner"
    echo "remove $name at $url" >>"$github/log"
    local delete="Delete $url/actions/runners/1" status
    # Older versions exchange the token before they delete the runner.
    fault exchange && delete="POST $url/runner-registration"
    if [ "$ACTIONS_RUNNER_INPUT_TOKEN" != "$(cat "$github/removal-token")" ]; then
        refuse "$delete" NotFound "404 (Not Found)" '{"message":"Not Found"}'
    fi
    if fault busy; then
        status=$(cat "$github/faults/busy")
        rm "$github/faults/busy"
        local words="Bad request - Runner \\\"$name\\\" is still running a job\\\""
        case $status in
        "")
            # The old flow has an exception instead.
            echo "Failed: Removing runner from the server" >&2
            echo "Runner $name is currently running a job and cannot be deleted." >&2
            exit 1
            ;;
        UnprocessableContent) status="422 (Unprocessable Content)" ;;
        *) status="422 (Unprocessable Entity)" ;;
        esac
        # It has tried three times.
        local name_of_status=${status#422 (}
        name_of_status=${name_of_status//[ )]/}
        for _ in 1 2; do report "$delete" "$name_of_status" "{\"message\":\"$words\"}"; done
        refuse "$delete" "$name_of_status" "$status" "{\"message\":\"$words\"}"
    fi
    if fault refused; then
        refuse "$delete" Forbidden "403 (Forbidden)" '{"message":"Forbidden"}'
    fi
    if fault unknown; then
        refuse "$delete" NotFound "404 (Not Found)" '{"message":"Not Found"}'
    fi
    rm -f "$github/list/$name" "$root"/.runner "$root"/.credentials*
    echo "√ Runner removed successfully"
}

job() {
    local script=$1 result=Succeeded
    export GITHUB_RUN_ID GITHUB_JOB=build GITHUB_RUN_ATTEMPT=1 RUNNER_TEMP=$root/_work/_temp
    GITHUB_RUN_ID=$(basename "$script" | cut -d. -f1)
    mkdir -p "$root/_work/repo" "$RUNNER_TEMP"
    cd "$root/_work/repo" || exit 1
    say "Running job: build"
    if bash -e "$ACTIONS_RUNNER_HOOK_JOB_STARTED" >"$script.log" 2>&1; then
        bash "$script" >>"$script.log" 2>&1 || result=Failed
    else
        result=Failed
    fi
    bash -e "$ACTIONS_RUNNER_HOOK_JOB_COMPLETED" >>"$script.log" 2>&1
    say "Job build completed with result: $result"
    echo "$result" >"$script.done"
}

run() {
    mkdir -p "$root/_diag"
    echo "a log" >"$root/_diag/Runner_$$.log"
    if [ ! -e "$root/.runner" ]; then
        echo "An error occurred: Not configured. Run config.(sh/cmd) to configure the runner." >&2
        exit 1
    fi
    trap 'echo Exiting...; exit 0' INT
    if fault silent; then
        sleep 300 &
        wait
    fi
    if fault exit; then
        # GitHub refuses a deprecated version only when it asks for a job.
        [ "$(cat "$github/faults/exit")" = 7 ] && say "Listening for Jobs"
        cat "$github/faults/words" >&2
        exit "$(cat "$github/faults/exit")"
    fi
    trap 'echo Exiting...; kill "$child" 2>/dev/null; echo gone >>"$github/log"; exit 0' INT
    fault stubborn && trap '' INT
    echo
    echo "√ Connected to GitHub"
    echo "Current runner version: '$(cat "$root/bin/version")'"
    say "Listening for Jobs"
    while :; do
        fault crash && rm "$github/faults/crash" && exit 2
        for script in "$github"/jobs/*.sh; do
            if [ -e "$script" ] && [ ! -e "$script.taken" ]; then
                touch "$script.taken"
                job "$script" &
                child=$!
                wait "$child"
            fi
        done
        sleep 0.02 &
        child=$!
        wait "$child"
    done
}

case $1 in
--version) cat "$root/bin/version" ;;
configure | remove | run)
    what=$1
    shift
    "$what" "$@"
    ;;
*) exit 1 ;;
esac
