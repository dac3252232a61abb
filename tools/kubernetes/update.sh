#!/usr/bin/env bash
# Writes go.mod and go.sum for another version of Kubernetes: tools/kubernetes/update.sh v1.34.4
# Kubernetes' own go.mod replaces the modules below k8s.io by folders of its repository. A module that requires
# Kubernetes does not inherit that, so each of them is replaced here by what is published under the same version.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=${1:?usage: update.sh VERSION, as in v1.34.4}
published=v0.${version#v1.}
# shellcheck source=tools/go.sh
source "$here/../go.sh"
go=$(go_command "$here/../../.cache")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
theirs=$(cd "$work" && "$go" mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\s*"GoMod": "\(.*\)",$/\1/p')
etcd=$(awk '$1 == "go.etcd.io/etcd/client/v3" { print $2; exit }' "$theirs")
{
  printf 'module kafkalite.io/kubernetes\n\n'
  grep -E '^(go|godebug) ' "$theirs"
  printf '\nrequire (\n'
  printf '\tgo.etcd.io/etcd/server/v3 %s\n' "$etcd"
  printf '\tk8s.io/%s '"$published"'\n' client-go component-base kubectl
  printf '\tk8s.io/kubernetes %s\n)\n\nreplace (\n' "$version"
  awk -v version="$published" '$2 == "=>" && $3 ~ /^\.\/staging\// { print "\t" $1 " => " $1 " " version }' "$theirs"
  printf ')\n'
} >"$here/go.mod"
rm -f "$here/go.sum"
cd "$here"
# Only what this program imports: `go mod tidy` would also fetch what the tests of every dependency need.
"$go" list -mod=mod -deps . >/dev/null
echo "go.mod requires $(grep -c '^\s.* v[0-9]' go.mod) modules; now: make kubernetes"
