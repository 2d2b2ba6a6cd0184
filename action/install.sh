#!/usr/bin/env bash
# Gets the ondeck program for a step of the Action: from the runner's tool cache, from a release,
# or from source. Says where it is, and where machines get their agent, as outputs of the step.
#
# Inputs arrive as variables only: MODE, VERSION, DOWNLOAD_URL, SHA256, FROM_SOURCE,
# VERIFY_PROVENANCE, AGENT_URL, AGENT_SHA256, AGENT_URL_ARM64 and AGENT_SHA256_ARM64, as they were
# given.
set -euo pipefail

readonly RELEASES=https://github.com/ondeck-ci/ondeck/releases/download
readonly REPOSITORY=ondeck-ci/ondeck

main() {
  case ${MODE:-} in
    refresh | provision | release | apply) ;;
    '') fail invalid-input "no mode" "no mode given" "mode is refresh, provision, release or apply" ;;
    *)
      fail invalid-input "no such mode" "no such mode: $MODE" \
        "mode is refresh, provision, release or apply"
      ;;
  esac
  verify=${VERIFY_PROVENANCE:-auto}
  case $verify in
    auto | required | off) ;;
    *)
      fail invalid-input "no such value" "verify-provenance is none of auto, required, off: $verify" \
        "auto checks where the GitHub CLI can"
      ;;
  esac
  if [ "${FROM_SOURCE:-false}" = true ]; then
    build
    return
  fi
  detect_platform
  resolve_version
  page=${DOWNLOAD_URL:-$RELEASES}
  page=${page%/}
  may_be_asked "$page"
  pin=${SHA256:-}
  # Digests are compared as sha256sum writes them.
  pin=${pin,,}
  use_folder
  # Other jobs of this machine may want the same at the same time. One of them fetches it.
  exec {lock}>"$folder.lock"
  flock "$lock"
  if is_complete; then
    say "ondeck $version is in the tool cache"
  else
    download
  fi
  output program "$folder/ondeck"
  offer_agent
}

detect_platform() {
  case "$(uname -s) $(uname -m)" in
    "Linux x86_64") arch=x64 target=x86_64-unknown-linux-musl ;;
    "Linux aarch64" | "Linux arm64") arch=arm64 target=aarch64-unknown-linux-musl ;;
    *)
      fail invalid-input "no ondeck for this platform" "no release of ondeck for this platform: $(uname -sm)" \
        "there are releases for Linux on x86-64 and arm64; with from-source: true it is built here"
      ;;
  esac
}

# What was asked for, or what this checkout is. The ref that the workflow names says the same by
# another way, and a wrong one where this action is called from another composite action.
resolve_version() {
  version=${VERSION:-}
  version=${version#v}
  if [ -z "$version" ]; then
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$GITHUB_ACTION_PATH/Cargo.toml" | head -n 1)
  fi
  # It becomes part of a path and of a URL.
  is_version "$version" ||
    fail invalid-input "no such version" "not a version of ondeck: $version" "a version is like 1.2.3"
}

is_version() {
  [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]]
}

# The tool cache outlives the job on a self-hosted runner. Where it cannot be written, the program
# is fetched for this job alone.
use_folder() {
  local cache
  for cache in "${RUNNER_TOOL_CACHE:-}" "${RUNNER_TEMP:-}" "${TMPDIR:-/tmp}"; do
    if [ -n "$cache" ] && mkdir -p "$cache/ondeck/$version" 2>/dev/null &&
      [ -w "$cache/ondeck/$version" ]; then
      folder=$cache/ondeck/$version/$arch
      return
    fi
  done
  fail unexpected "ondeck cannot be installed" "no folder can be written: ${cache:-}" \
    "RUNNER_TOOL_CACHE or RUNNER_TEMP has to be a folder of the runner's user"
}

# The marker holds the digest that was checked after the download. A file that no longer matches it
# is not run.
is_complete() {
  local noted
  [ -f "$folder/SHA256SUMS" ] && [ -f "$folder.complete" ] || return 1
  noted=$(<"$folder.complete")
  [ "$verify" != required ] || [ "$(cat "$folder.provenance" 2>/dev/null)" = "$noted" ] || return 1
  [ "${pin:-$noted}" = "$noted" ] && [ -f "$folder/ondeck" ] &&
    [ "$(digest_of "$folder/ondeck")" = "$noted" ]
}

# Downloads into a folder beside the target, then renames it once: a download that is killed leaves
# nothing that looks complete.
download() {
  local asset=ondeck-$version-$target expected found
  work=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "fetching ondeck $version"
  fetch SHA256SUMS "$work/SHA256SUMS"
  expected=${pin:-$(published "$work/SHA256SUMS" "$asset")}
  [ -n "$expected" ] ||
    fail invalid-input "no ondeck for this platform" "not among the files of release $version: $asset" \
      "releases are listed at https://github.com/ondeck-ci/ondeck/releases"
  fetch "$asset" "$work/ondeck"
  found=$(digest_of "$work/ondeck")
  if [ "$found" != "$expected" ]; then
    fail invalid-input "ondeck is not what it should be" \
      "the SHA-256 of $asset should be $expected, but is $found" \
      "do not use it before you know why; download-url and the input sha256 are the first guess"
  fi
  local verified=false
  check_provenance "$work/ondeck"
  chmod 755 "$work" "$work/ondeck"
  rm -rf "$folder.complete" "$folder.provenance" "$folder"
  mv -T "$work" "$folder"
  if [ "$verified" = true ]; then
    echo "$expected" >"$folder.provenance"
  fi
  echo "$expected" >"$folder.complete"
}

# The digest says that the file is the release's; the provenance says that the release was built by
# the project's own workflow. A mirror may hold builds of its owner.
check_provenance() {
  local said
  case $verify in
    off) return 0 ;;
    auto)
      if [ "$page" != "$RELEASES" ]; then
        say "the provenance was not checked: download-url names a mirror"
        return 0
      fi
      ;;
  esac
  if ! command -v gh >/dev/null; then
    no_provenance "the GitHub CLI is not on this runner: gh"
  elif ! gh auth status --hostname github.com >/dev/null 2>&1; then
    no_provenance "the GitHub CLI has no valid token for github.com"
  elif said=$(gh attestation verify "$1" --repo "$REPOSITORY" 2>&1); then
    say "the provenance was checked: built by $REPOSITORY"
    verified=true
  else
    fail invalid-input "ondeck is not what it should be" \
      "its provenance is not that of $REPOSITORY: $(tail -n 1 <<<"$said")" \
      "do not use it before you know why; verify-provenance: off does without the check"
  fi
}

no_provenance() {
  [ "$verify" != required ] ||
    fail invalid-input "the provenance cannot be checked" "$1" \
      "install the GitHub CLI on the runner, or give verify-provenance: auto"
  say "the digest was checked, and the provenance was not: $1"
}

# Refresh tells machines where to get the agent: from the same release, unless the workflow names
# another place. Apply stores it for a refresh that no action starts, such as the function's. The agent
# runs on the machines of the pool, whose architecture is that of their image and not that of the
# runner of this step.
offer_agent() {
  local given=${AGENT_URL:-}${AGENT_SHA256:-}${AGENT_URL_ARM64:-}${AGENT_SHA256_ARM64:-}
  stores_agent && [ -z "$given" ] || return 0
  offer_agent_for x86_64 ''
  offer_agent_for aarch64 -arm64
}

stores_agent() {
  [ "$MODE" = refresh ] || [ "$MODE" = apply ]
}

offer_agent_for() {
  local asset=ondeck-agent-$version-$1-unknown-linux-musl suffix=$2 digest
  digest=$(published "$folder/SHA256SUMS" "$asset")
  [ -n "$digest" ] ||
    fail invalid-input "no agent for machines" "not among the files of release $version: $asset" \
      "give agent-url and agent-sha256, or agent-url: image where the agent is on the image"
  output "agent-url$suffix" "$page/v$version/$asset"
  output "agent-sha256$suffix" "$digest"
}

build() {
  command -v cargo >/dev/null ||
    fail unexpected "ondeck cannot be built" "there is no cargo to build it with" \
      "install Rust in a step before, or leave from-source away"
  say "building ondeck from source"
  (cd "$GITHUB_ACTION_PATH" &&
    cargo build --release --locked --target-dir target --package ondeck \
      --features aws,github >&2) ||
    fail unexpected "ondeck cannot be built" "the build has failed" "what cargo says is above"
  output program "$GITHUB_ACTION_PATH/target/release/ondeck"
  if stores_agent && [ -z "${AGENT_URL:-}" ]; then
    echo "::notice title=ondeck was built from source::machines keep the agent that $MODE was" \
      "last given; agent-url and agent-sha256 give them another"
  fi
}

# One file of the release, by its name.
fetch() {
  local url=$page/v$version/$1 into=$2 protocols='=https' status
  [[ $page == https://* ]] || protocols='=http,https'
  if ! status=$(curl --silent --show-error --location --proto "$protocols" \
    --proto-redir "$protocols" --connect-timeout 10 --max-time 300 --retry 3 --retry-connrefused \
    --retry-max-time 60 --output "$into" --write-out '%{http_code}' "$url" 2>"$into.said"); then
    fail unavailable "ondeck cannot be fetched" "$(tail -n 1 "$into.said"): $url" \
      "download-url names a mirror, for runners that do not reach GitHub's releases"
  fi
  case $status in
    200) ;;
    404)
      fail invalid-input "no such version" "no such file, so probably no such version: $url" \
        "releases are listed at https://github.com/ondeck-ci/ondeck/releases"
      ;;
    *)
      fail unavailable "ondeck cannot be fetched" "the answer is $status: $url" \
        "download-url names a mirror, for runners that do not reach GitHub's releases"
      ;;
  esac
  rm -f "$into.said"
}

# Nothing is fetched in the open, except from this very computer.
may_be_asked() {
  [[ $1 =~ ^https://[^[:space:]]+$ || $1 =~ ^http://(127\.0\.0\.1|localhost)(:[0-9]+)?(/[^[:space:]]*)?$ ]] ||
    fail invalid-input "ondeck cannot be fetched" "not an address that begins with https://: $1" \
      "download-url is the part before /v$version/"
}

# The digest that a release states for one of its files; nothing where it has no such file.
published() {
  awk -v name="$2" '$2 == name || $2 == "*" name { print tolower($1); exit }' "$1"
}

digest_of() {
  sha256sum "$1" | cut -d ' ' -f 1
}

output() {
  write_output "$1" "$2" || {
    report_unwritable_outputs
    exit 1
  }
}

write_output() {
  echo "$1=$2" >>"${GITHUB_OUTPUT:-}"
}

report_unwritable_outputs() {
  report "ondeck cannot say where it is" "step outputs cannot be written: ${GITHUB_OUTPUT:-}" \
    "GITHUB_OUTPUT must name a file that the step can write"
}

say() {
  echo "$1"
}

# Reports the failure first, so that outputs that cannot be written do not hide it. The output
# `result` has the form that the program gives it.
fail() {
  local kind=$1 title=$2 message=$3 hint=$4
  report "$title" "$message" "$hint"
  write_output result "{\"schemaVersion\":1,\"status\":\"failed\",\"error\":{\"kind\":\"$kind\",\"message\":\"$(
    in_json "$message"
  )\",\"hint\":\"$(in_json "$hint")\"}}" || report_unwritable_outputs
  exit 1
}

# Says what went wrong where people look: as an annotation of the step and in the job summary.
report() {
  local title=$1 message=$2 hint=$3 text
  text="$message"$'\n'"hint: $hint"
  text=${text//'%'/%25}
  text=${text//$'\r'/%0D}
  text=${text//$'\n'/%0A}
  echo "::error title=$title::$text"
  if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    printf '### ondeck failed: %s\n\n> %s\n>\n> **hint:** %s\n' "$title" "$(in_html "$message")" \
      "$(in_html "$hint")" >>"$GITHUB_STEP_SUMMARY" ||
      echo "::warning title=ondeck::the job summary cannot be written"
  fi
}

in_json() {
  local text=${1//[[:cntrl:]]/ }
  text=${text//\\/\\\\}
  echo "${text//\"/\\\"}"
}

in_html() {
  local text=${1//[[:cntrl:]]/ }
  text=${text//&/'&amp;'}
  text=${text//</'&lt;'}
  echo "${text//>/'&gt;'}"
}

main
