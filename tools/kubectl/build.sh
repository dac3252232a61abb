#!/usr/bin/env bash
# Builds kubectl into OUT (default: .cache/kubectl of the repository) unless that version is already there.
#   tools/kubectl/build.sh [OUT]     prints the path of the binary on standard output, progress on standard error
# `go install k8s.io/kubectl/...@version` has no main package to offer, so this folder holds one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/../../.cache/kubectl}
module=$(awk '$1 == "k8s.io/kubectl" { print $2; exit }' "$here/go.mod")
version=v1.${module#v0.}
binary=$out/kubectl
stamp=$out/kubectl.version
key="$version $(cat "$here/go.mod" "$here/go.sum" "$here/main.go" "${BASH_SOURCE[0]}" | sha256sum | cut -c1-16)"

mkdir -p "$out"
out=$(cd "$out" && pwd)
binary=$out/kubectl
stamp=$out/kubectl.version
exec 9>"$out/kubectl.lock"
flock 9 # two test runs that start at once build it once
if [[ -x $binary && -f $stamp && $(cat "$stamp") == "$key" ]]; then
  echo "$binary"
  exit 0
fi
if ! command -v go >/dev/null; then
  echo "kubectl $version has to be built, and that needs Go 1.24 or later: install it, or put kubectl 1.34 at $binary" >&2
  exit 1
fi

echo "building kubectl $version (once; one to three minutes) ..." >&2
started=$SECONDS
link="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  link+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$(cut -d. -f2 <<<"$version")"
  link+=" -X $package.gitTreeState=clean -X $package.gitCommit= -X $package.buildDate=1970-01-01T00:00:00Z"
done
cd "$here"
CGO_ENABLED=0 go build -buildvcs=false -trimpath -mod=readonly -ldflags "$link" -o "$binary.new" .
mv "$binary.new" "$binary"
echo "$key" >"$stamp"
echo "built $binary in $((SECONDS - started)) s" >&2
echo "$binary"
