#!/usr/bin/env bash
# Copies what Kubernetes and the Prometheus operator publish about their objects into OUT (default: .cache/schemas):
# OpenAPI documents of the API groups that the chart uses, and the definitions of ServiceMonitor, PodMonitor
# and PrometheusRule.
#   tools/schemas/fetch.sh [OUT]     prints the folder on standard output, progress on standard error
# They come from the two projects' Go modules; a module whose hash is not the one below is refused.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../../.cache/schemas}")
readonly GROUPS_USED=(api__v1 apis__admissionregistration.k8s.io__v1 apis__apiextensions.k8s.io__v1 apis__apps__v1
  apis__networking.k8s.io__v1 apis__policy__v1 apis__rbac.authorization.k8s.io__v1)
readonly PROMETHEUS_KINDS=(servicemonitors podmonitors prometheusrules)

mkdir -p "$out"
exec 9>"$out/.lock"
flock 9 # two test runs that start at once fetch once
key=$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-16)
if [[ -f $out/.complete && $(<"$out/.complete") == "$key" ]]; then
  echo "$out"
  exit 0
fi
# shellcheck source=tools/go.sh
source "$here/../go.sh"
go=$(go_command "$here/../../.cache")

# module NAME VERSION HASH: the folder of that module.
module() {
  local answer attempt
  echo "fetching $1 $2 ..." >&2
  for attempt in 1 2 3; do # Go does not try again
    if answer=$(cd / && GO111MODULE=on "$go" mod download -json "$1@$2"); then break; fi
    echo "$answer" >&2
    [[ $attempt -lt 3 ]] || return 1
    sleep $((5 * attempt))
  done
  if ! grep -qF "\"Sum\": \"$3\"" <<<"$answer"; then
    echo "$1 $2 is not what it was: expected the hash $3, got" "$(sed -n 's/.*"Sum": //p' <<<"$answer")" >&2
    return 1
  fi
  sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$answer"
}

folder=$(module k8s.io/kubernetes v1.34.4 h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk=)
for group in "${GROUPS_USED[@]}"; do
  install -m 644 "$folder/api/openapi-spec/v3/${group}_openapi.json" "$out/$group.json"
done
folder=$(module github.com/prometheus-operator/prometheus-operator v0.85.0 h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=)
for kind in "${PROMETHEUS_KINDS[@]}"; do
  install -m 644 "$folder/example/prometheus-operator-crd/monitoring.coreos.com_$kind.yaml" "$out/$kind.yaml"
done
echo "$key" >"$out/.complete"
echo "$out"
