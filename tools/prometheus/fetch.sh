#!/usr/bin/env bash
# Has prometheus and promtool in a folder: those on PATH, else the ones of Debian's package in OUT (default:
# .cache/prometheus). The package is unpacked, not installed: an installed one starts a server on every address.
#   tools/prometheus/fetch.sh [OUT]     prints the folder on standard output, progress on standard error
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly MINOR_MIN=40 # what the tests were written with is 2.42

# is_new_enough FOLDER: whether there are both, 2.40 or later.
is_new_enough() {
  local program major minor
  for program in prometheus promtool; do
    [[ -x $1/$program ]] || return 1
    read -r major minor < <("$1/$program" --version 2>&1 | sed -n 's/.* version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p') || return 1
    [[ $major -gt 2 || ($major -eq 2 && $minor -ge $MINOR_MIN) ]] || return 1
  done
}

found=$(command -v prometheus || true)
if [[ -n $found ]] && is_new_enough "$(dirname "$found")"; then
  dirname "$found"
  exit 0
fi
out=$(realpath -m "${1:-$here/../../.cache/prometheus}")
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9 # two test runs that start at once fetch once
if is_new_enough "$out"; then
  echo "$out"
  exit 0
fi
refuse() {
  echo "$1: put prometheus and promtool 2.$MINOR_MIN or later on PATH (Debian: the package prometheus)" >&2
  exit 1
}
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || refuse "There is no Prometheus here, and no apt-get to fetch it"
work=$(mktemp -d "$out/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
echo "fetching Debian's package prometheus (20 MB) ..." >&2
if ! apt-get download -qq prometheus >log 2>&1; then
  # A fresh image has no lists of packages, and only root may fetch them.
  { [[ $(id -u) -ne 0 ]] || apt-get update -qq; } >>log 2>&1 && apt-get download -qq prometheus >>log 2>&1 ||
    { cat log >&2; refuse "apt-get could not fetch Prometheus"; }
fi
dpkg-deb -x prometheus_*.deb unpacked
install -m 755 unpacked/usr/bin/prometheus unpacked/usr/bin/promtool "$out"
is_new_enough "$out" || refuse "The Prometheus of this Debian is too old, or does not run here"
echo "$out"
