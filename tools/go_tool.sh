#!/usr/bin/env bash
# Builds one program from its published Go module. Sourced by tools/NAME/build.sh, whose folder holds go.mod and go.sum.
#   build_go_tool NAME VERSION OUT PACKAGE LINK-FLAGS      prints the path of the binary
# Nothing is done when OUT holds that version already, made from the same files. Progress goes to standard error.

# module_version FILE MODULE: the version that a go.mod requires.
module_version() {
  local version
  version=$(awk -v module="$2" '$1 == "require" { $1 = ""; $0 = $0 } $1 == module { print $2; exit }' "$1")
  [[ -n $version ]] || { echo "$1 does not require $2" >&2; return 1; }
  echo "$version"
}

build_go_tool() {
  local name=$1 version=$2 out=$3 package=$4 link=$5
  local binary stamp key started
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  binary=$out/$name
  stamp=$out/$name.version
  # Everything that the binary is made of: the folder, this script, and the flags.
  key="$version $({ find . -maxdepth 1 -type f -print0 | sort -z | xargs -0 cat
    cat "${BASH_SOURCE[0]}" && echo "$link"; } | sha256sum | cut -c1-16)"
  exec 9>"$out/$name.lock"
  flock 9 # two test runs that start at once build it once
  if [[ -x $binary && -f $stamp && $(<"$stamp") == "$key" ]]; then
    echo "$binary"
    return 0
  fi
  if ! command -v go >/dev/null; then
    echo "$name $version has to be built, and that needs Go 1.24 or later: install Go, or call this again where it is" >&2
    return 1
  fi
  echo "building $name $version (once; one to five minutes) ..." >&2
  started=$SECONDS
  if ! go mod download >&2; then
    echo "the modules of $name $version could not be downloaded: see above; go uses the module proxy of 'go env'" >&2
    return 1
  fi
  echo "  modules are there after $((SECONDS - started)) s, compiling ..." >&2
  if ! CGO_ENABLED=0 go build -buildvcs=false -trimpath -mod=readonly -ldflags "$link" -o "$binary.new" "$package"; then
    echo "$name $version could not be compiled: see above; $(go version) is at work, Go 1.24 or later is needed" >&2
    return 1
  fi
  mv "$binary.new" "$binary"
  echo "$key" >"$stamp"
  echo "built $binary in $((SECONDS - started)) s" >&2
  echo "$binary"
}
