#!/usr/bin/env bash
# Builds kubectl into OUT (default: .cache/kubectl of the repository) unless that version is already there.
#   tools/kubectl/build.sh [OUT]     prints the path of the binary on standard output, progress on standard error
# `go install k8s.io/kubectl/...@version` has no main package to offer, so this folder holds one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/go.sh
source "$here/../go.sh"
module=$(module_version "$here" k8s.io/kubectl)
version=v1.${module#v0.}
build_once "$here" "${1:-$here/../../.cache/kubectl}/kubectl" "$version" . "$(kubernetes_flags "$version")" \
  "one to three minutes"
