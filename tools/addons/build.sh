#!/usr/bin/env bash
# Builds CoreDNS and the agents of the kind nodes into OUT (default: .cache/kind/bin of the repository): one binary.
#   tools/addons/build.sh [OUT]     prints the path of the binary on standard output, progress on standard error
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/go.sh
source "$here/../go.sh"
version=$(module_version "$here" github.com/coredns/coredns)
build_once "$here" "${1:-$here/../../.cache/kind/bin}/addons" "$version" . "-s -w" "one to four minutes"
