#!/usr/bin/env bash
# Prints the folder of the spark-operator's Go module, which also holds its chart and its custom resource definitions.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/go.sh
source "$here/../go.sh"
go=$(go_command "$here/../../.cache")
cd "$here"
"$go" mod download github.com/kubeflow/spark-operator/v2 >&2
"$go" list -m -f '{{.Dir}}' github.com/kubeflow/spark-operator/v2
