#!/usr/bin/env bash
# Builds kubectl into OUT (default: .cache/kubectl of the repository) unless that version is already there.
#   tools/kubectl/build.sh [OUT]     prints the path of the binary on standard output, progress on standard error
# `go install k8s.io/kubectl/...@version` has no main package to offer, so this folder holds one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../../.cache/kubectl}")
cd "$here"
source ../go_tool.sh

module=$(module_version go.mod k8s.io/kubectl)
version=v1.${module#v0.}
link="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  link+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$(cut -d. -f2 <<<"$version")"
  link+=" -X $package.gitTreeState=clean -X $package.gitCommit= -X $package.buildDate=1970-01-01T00:00:00Z"
done
build_go_tool kubectl "$version" "$out" . "$link"
