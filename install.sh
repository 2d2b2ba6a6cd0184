#!/bin/sh
# Installs the ondeck program of a release: downloads it, checks its SHA-256 against the release's
# SHA256SUMS, checks where it was built if the GitHub CLI is there, and puts it into a folder.
#
# Nothing that was downloaded is run before it is checked, and an earlier version stays until then.
set -eu

RELEASES=https://github.com/ondeck-ci/ondeck/releases
REPOSITORY=ondeck-ci/ondeck

usage() {
  cat <<'END'
Install ondeck

Usage: install.sh [OPTIONS]

Options:
  --version VERSION    version to install, such as 1.2.3 [default: the newest release]
  --dir DIR            folder to install into [default: ~/.local/bin]
  --download-url URL   mirror of the releases: the part before /vVERSION/
  --provenance WHEN    check where the program was built: auto, if the GitHub CLI is there and signed
                       in; required, or else fail; off [default: auto]
  --help               print this text
END
}

main() {
  version='' dir=${HOME:-}/.local/bin page='' provenance=auto
  while [ $# -gt 0 ]; do
    case $1 in
      --help)
        usage
        exit 0
        ;;
      --version | --dir | --download-url | --provenance)
        [ $# -ge 2 ] || fail 2 "no value given: $1" "install.sh --help"
        case $1 in
          --version) version=${2#v} ;;
          --dir) dir=$2 ;;
          --download-url) page=${2%/} ;;
          --provenance) provenance=$2 ;;
        esac
        shift 2
        ;;
      *) fail 2 "unknown option: $1" "install.sh --help" ;;
    esac
  done
  case $provenance in
    auto | required | off) ;;
    *) fail 2 "provenance is none of auto, required, off: $provenance" "install.sh --help" ;;
  esac
  need curl
  detect_platform
  [ -z "$page" ] || check_address "$page"
  [ -n "$version" ] || find_newest
  is_version "$version" || fail 2 "not a version: $version" "a version is like 1.2.3"
  install
}

detect_platform() {
  case "$(uname -s) $(uname -m)" in
    "Linux x86_64") target=x86_64-unknown-linux-musl ;;
    "Linux aarch64" | "Linux arm64") target=aarch64-unknown-linux-musl ;;
    "Darwin x86_64") target=x86_64-apple-darwin ;;
    "Darwin arm64") target=aarch64-apple-darwin ;;
    *) fail 2 "no release for this platform: $(uname -sm)" "build it: cargo build --release" ;;
  esac
}

# GitHub answers with the address of the newest release, which ends in its tag.
find_newest() {
  [ -z "$page" ] || fail 2 "a mirror does not say which release is the newest" "give --version"
  newest=$(curl --silent --show-error --fail --proto '=https' --connect-timeout 10 --max-time 60 \
    --output /dev/null --write-out '%{redirect_url}' "$RELEASES/latest") ||
    fail 6 "the newest release cannot be found: $RELEASES/latest" "give --version"
  version=${newest##*/v}
}

# It becomes part of a path and of an address.
is_version() {
  case $1 in *[!0-9A-Za-z.-]*) return 1 ;; esac
  printf '%s\n' "$1" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?'
}

install() {
  page=${page:-$RELEASES/download}
  asset=ondeck-$version-$target
  mkdir -p "$dir" || fail 2 "the folder cannot be created: $dir" "give --dir"
  # Beside its target, so that it gets there by one rename.
  work=$(mktemp -d "$dir/.ondeck.XXXXXX") ||
    fail 2 "the folder cannot be written: $dir" "give --dir"
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  fetch SHA256SUMS
  expected=$(awk -v name="$asset" \
    '$2 == name || $2 == "*" name { print tolower($1); exit }' "$work/SHA256SUMS")
  [ -n "$expected" ] ||
    fail 2 "not among the files of release $version: $asset" "releases are listed at $RELEASES"
  fetch "$asset"
  found=$(digest_of "$work/$asset")
  [ "$found" = "$expected" ] ||
    fail 2 "the SHA-256 of $asset should be $expected, but is $found" \
      "do not use it before you know why"
  check_provenance
  chmod 755 "$work/$asset"
  said=$("$work/$asset" --version) && [ "$said" = "ondeck $version" ] ||
    fail 10 "it does not run, or is not $version: ${said:-}" "report it"
  mv -f "$work/$asset" "$dir/ondeck" ||
    fail 2 "the program cannot be replaced: $dir/ondeck" "give --dir"
  echo "ondeck $version is installed: $dir/ondeck"
  case :${PATH:-}: in
    *:"$dir":*) ;;
    *) echo "hint: add $dir to PATH" ;;
  esac
}

# The digest says that the file is the release's; the provenance says that the release was built by the
# project's workflow.
check_provenance() {
  [ "$provenance" != off ] || return 0
  if ! command -v gh >/dev/null 2>&1; then
    no_provenance "the GitHub CLI is not there: gh"
    return
  fi
  if ! gh auth status >/dev/null 2>&1; then
    no_provenance "the GitHub CLI is not signed in: gh auth login"
    return
  fi
  if gh attestation verify "$work/$asset" --repo "$REPOSITORY" >"$work/said" 2>&1; then
    echo "provenance checked: built by $REPOSITORY"
    return
  fi
  cat "$work/said" >&2
  fail 2 "the provenance of $asset is not that of $REPOSITORY" "do not use it before you know why"
}

no_provenance() {
  [ "$provenance" = auto ] || fail 2 "the provenance cannot be checked; $1" "give --provenance auto"
  echo "the digest was checked, and the provenance was not; $1"
}

# One file of the release, by its name. No redirect leads to an address without TLS.
fetch() {
  url=$page/v$version/$1
  protocols='=https'
  case $page in https://*) ;; *) protocols='=http,https' ;; esac
  status=$(curl --silent --show-error --location --proto "$protocols" --proto-redir "$protocols" \
    --connect-timeout 10 --max-time 300 --retry 3 --retry-connrefused --retry-max-time 60 \
    --output "$work/$1" --write-out '%{http_code}' "$url") ||
    fail 6 "the file cannot be fetched: $url" "--download-url names a mirror"
  case $status in
    200) ;;
    404) fail 2 "no such file, so probably no such version: $url" "releases are listed at $RELEASES" ;;
    *) fail 6 "the answer is $status: $url" "--download-url names a mirror" ;;
  esac
}

# Nothing is fetched in the open, except from this very computer.
check_address() {
  case $1 in *[[:space:]]*) fail 2 "an address has no blanks: $1" "give it without them" ;; esac
  printf '%s\n' "$1" |
    grep -Eqx 'https://[^[:space:]]+|http://(127\.0\.0\.1|localhost)(:[0-9]+)?(/[^[:space:]]*)?' ||
    fail 2 "not an address that begins with https://: $1" "--download-url names a mirror"
}

digest_of() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum "$1" | cut -d ' ' -f 1
  else
    shasum -a 256 "$1" | cut -d ' ' -f 1
  fi
}

need() {
  command -v "$1" >/dev/null 2>&1 || fail 2 "a program is missing: $1" "install $1"
}

fail() {
  echo "error: $2" >&2
  echo "hint: $3" >&2
  exit "$1"
}

main "$@"
