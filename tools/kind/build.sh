#!/usr/bin/env bash
# Builds kind into OUT (default: .cache/kind/bin of the repository) unless that version is already there.
#   tools/kind/build.sh [OUT]     prints the path of the binary on standard output, progress on standard error
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/go.sh
source "$here/../go.sh"
version=$(module_version "$here" sigs.k8s.io/kind)
build_once "$here" "${1:-$here/../../.cache/kind/bin}/kind" "$version" sigs.k8s.io/kind "-s -w" "half a minute"
