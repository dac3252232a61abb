#!/usr/bin/env bash
# Builds the programs of Kubernetes, and etcd, into OUT/VERSION (default: .cache/kubernetes of the repository) unless they
# are already there: one binary, and a link for each program.
#   tools/kubernetes/build.sh [OUT]     prints that folder on standard output, progress on standard error
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/go.sh
source "$here/../go.sh"
version=$(module_version "$here" k8s.io/kubernetes)
binary=$(build_once "$here" "${1:-$here/../../.cache/kubernetes}/$version/kubernetes" "$version" . "$(kubernetes_flags "$version")" \
  "8 to 12 minutes on two cores, 3.5 GB in Go's build cache")
folder=$(dirname "$binary")
for program in $("$binary" 2>&1 | sed -n 's/^  //p'); do
  ln -sfn kubernetes "$folder/$program"
done
echo "$folder"
