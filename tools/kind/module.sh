#!/usr/bin/env bash
# Prints the folder of kind's Go module, which also holds the files of its node image.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/go.sh
source "$here/../go.sh"
go=$(go_command "$here/../../.cache")
cd "$here"
"$go" mod download sigs.k8s.io/kind >&2
"$go" list -m -f '{{.Dir}}' sigs.k8s.io/kind
