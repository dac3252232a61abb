#!/usr/bin/env bash
# Builds helm into OUT (default: .cache/helm of the repository) unless that version is already there.
#   tools/helm/build.sh [OUT]     prints the path of the binary on standard output, progress on standard error
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../../.cache/helm}")
cd "$here"
source ../go_tool.sh

version=$(module_version go.mod helm.sh/helm/v3)
link="-s -w -X helm.sh/helm/v3/internal/version.version=$version -X helm.sh/helm/v3/internal/version.gitTreeState=clean"
# What `helm template` and `helm lint` take for the version of Kubernetes when they cannot ask a server.
minor=$(module_version go.mod k8s.io/client-go | cut -d. -f2)
for package in pkg/chartutil pkg/lint/rules; do
  link+=" -X helm.sh/helm/v3/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/$package.k8sVersionMinor=$minor"
done
build_go_tool helm "$version" "$out" helm.sh/helm/v3/cmd/helm "$link"
