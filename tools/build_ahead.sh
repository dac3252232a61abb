#!/usr/bin/env bash
# Builds programs that several tiers of the tests need, one after another, each once.
#   tools/build_ahead.sh kubernetes|helm|kubectl|kind|spark-operator ...     kind: what the nodes of docs/kind.md are made of
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for target in kubernetes helm kubectl kind spark-operator; do # in this order, and each at most once
  [[ " $* " == *" $target "* ]] || continue
  case $target in
    kind) for part in kind addons pause; do "tools/$part/build.sh" >/dev/null; done ;;
    spark-operator) tools/spark-operator/build.sh >/dev/null ;;
    *) make --no-print-directory "$target" ;;
  esac
done
