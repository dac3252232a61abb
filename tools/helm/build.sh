#!/usr/bin/env bash
# Builds helm into OUT (default: .cache/helm of the repository) unless that version is already there.
#   tools/helm/build.sh [OUT]     prints the path of the binary on standard output, progress on standard error
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/go.sh
source "$here/../go.sh"
version=$(module_version "$here" helm.sh/helm/v3)
flags="-s -w -X helm.sh/helm/v3/internal/version.version=$version -X helm.sh/helm/v3/internal/version.gitTreeState=clean"
# What `helm template` and `helm lint` take for the version of Kubernetes when they cannot ask a server.
minor=$(module_version "$here" k8s.io/client-go | cut -d. -f2)
for package in pkg/chartutil pkg/lint/rules; do
  flags+=" -X helm.sh/helm/v3/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/$package.k8sVersionMinor=$minor"
done
build_once "$here" "${1:-$here/../../.cache/helm}/helm" "$version" helm.sh/helm/v3/cmd/helm "$flags" "one to five minutes"
