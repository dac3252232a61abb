#!/usr/bin/env bash
# Builds the pause program of the kind nodes into OUT (default: .cache/kind/bin of the repository).
#   tools/pause/build.sh [OUT]     prints the path of the binary on standard output, progress on standard error
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/go.sh
source "$here/../go.sh"
build_once "$here" "${1:-$here/../../.cache/kind/bin}/pause" 1 . "-s -w" "a few seconds"
