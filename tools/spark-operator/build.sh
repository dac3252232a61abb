#!/usr/bin/env bash
# Builds the Kubeflow spark-operator into OUT (default: .cache/kind/bin of the repository) unless that version is already there.
#   tools/spark-operator/build.sh [OUT]     prints the path of the binary on standard output, progress on standard error
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/go.sh
source "$here/../go.sh"
version=$(module_version "$here" github.com/kubeflow/spark-operator/v2)
build_once "$here" "${1:-$here/../../.cache/kind/bin}/spark-operator" "$version" \
  github.com/kubeflow/spark-operator/v2/cmd/operator "-s -w" "five to ten minutes"
