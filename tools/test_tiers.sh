#!/usr/bin/env bash
# Runs the tiers of the test suite one after another and says at the end which ran, how long, and how they ended.
#   tools/test_tiers.sh [TIER ...]      default: all of ALL below
# What a tier needs beyond Python is installed when we are root on a Debian; otherwise the tier is reported as not run.
# With CI=true a tier that cannot run is a failure.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly ALL=(lint unit property scripted simulation search mutants chaos spark integration contract helm ha e2e)
readonly BIN=.venv/bin
readonly AHEAD_LOG=.cache/build-ahead.log
# The search only computes and is measured in minutes; the integration tier leaves it about a core. So the one runs
# beside the other.
readonly BESIDE=search BESIDE_OF=integration BESIDE_LOG=.cache/search-beside.log
export SEARCH_SECONDS=${SEARCH_SECONDS:-300}
tiers=("$@")
if [[ ${#tiers[@]} -eq 0 ]]; then
  tiers=("${ALL[@]}")
  unset KUBECONFIG # whoever runs everything did not offer the cluster that he happens to work with
fi
summary=()
failed=0
reason=""
ahead=""  # process that builds what later tiers need
beside="" # process of the tier that runs beside another

# ended: what runs ends with us: what is built beside, and a tier, which takes its processes and its cluster along.
ended() {
  local children=() child
  trap '' INT TERM HUP
  [[ -z $ahead ]] || kill -- "-$ahead" 2>/dev/null
  [[ -z $beside ]] || kill -- "-$beside" 2>/dev/null
  read -r -a children 2>/dev/null <"/proc/$$/task/$$/children"
  for child in "${children[@]}"; do
    kill -INT "$child" 2>/dev/null # upon which pytest clears up; by SIGTERM it would just be gone
    while kill -0 "$child" 2>/dev/null; do sleep 0.1; done
  done
}

# build_ahead: begin with the programs that take minutes to build. The tiers that need none of them run meanwhile and come
# first to the processors; whoever needs one waits for its lock, and sees the errors in its own attempt.
build_ahead() {
  local tier targets=()
  for tier in "${tiers[@]}"; do
    case $tier in
      contract | ha) targets+=(kubernetes) ;;
      helm) targets+=(kubernetes helm kubectl) ;;
      e2e) targets+=(kubernetes helm kind spark-operator) ;;
    esac
  done
  [[ ${#targets[@]} -gt 0 && ${#tiers[@]} -gt 1 ]] || return 0
  mapfile -t targets < <(printf '%s\n' "${targets[@]}" | sort -u)
  mkdir -p .cache
  : >"$AHEAD_LOG" # whoever waits at once reads it before the builder has made it
  setsid nice -n 19 tools/build_ahead.sh "${targets[@]}" >"$AHEAD_LOG" 2>&1 & # a process group, which ends as one
  ahead=$!
  echo "building beside the first tiers: ${targets[*]} (progress in $AHEAD_LOG)"
}

# built_ahead: wait for that.
built_ahead() {
  [[ -n $ahead ]] || return 0
  if kill -0 "$ahead" 2>/dev/null; then
    echo "waiting for what is built beside: $(tail -n 1 "$AHEAD_LOG")"
    renice -n 0 -g "$ahead" >/dev/null 2>&1 || true # nobody else needs the processors now
  fi
  wait "$ahead" || cat "$AHEAD_LOG"
  ahead=""
}

# apt_install COMMAND PACKAGE...: have COMMAND, by way of these Debian packages if need be.
apt_install() {
  local command=$1
  shift
  command -v "$command" >/dev/null && return 0
  if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; then
    echo "installing $* for $command"
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@") >/dev/null
    command -v "$command" >/dev/null && return 0
  fi
  reason="$command is missing (Debian: apt-get install $*)"
  return 1
}

# java_and_maven: have them, for Kafka's tools, for Spark, and for the jars of its images.
java_and_maven() {
  apt_install java openjdk-17-jre-headless && apt_install mvn maven
}

# java_version: the major version of the Java on PATH, 0 without one.
java_version() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  command -v "$java" >/dev/null || { echo 0; return; }
  "$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

# prepare TIER: 0 when the tier can run; else `reason` says why it cannot.
prepare() {
  reason=""
  # From chaos on processes run under faults, with limits of time: nothing is built beside them.
  case $1 in chaos | spark | integration | contract | helm | ha | e2e) built_ahead ;; esac
  case $1 in
    mutants) apt_install patch patch || return 1 ;;
    chaos)
      apt_install nft nftables && apt_install mkfs.ext4 e2fsprogs && apt_install ip iproute2 &&
        apt_install cc gcc libc6-dev || return 1
      ;;
    contract | ha)
      make --no-print-directory kubernetes || { reason="Kubernetes could not be built: see above (tools/kubernetes/build.sh)"; return 1; }
      ;;
    helm)
      if ! make --no-print-directory helm kubectl kubernetes || ! tools/schemas/fetch.sh >/dev/null ||
        ! tools/prometheus/fetch.sh >/dev/null; then
        reason="helm, kubectl, Kubernetes, the schemas or Prometheus could not be had: see above (tools/helm, tools/kubernetes, tools/schemas, tools/prometheus)"
        return 1
      fi
      ;;
    e2e)
      if [[ -z ${KUBECONFIG:-} && $(id -u) -ne 0 ]] && ! docker info >/dev/null 2>&1; then
        reason="KUBECONFIG names no cluster, and one to throw away needs root, or a Docker that runs (docs/kind.md)"
        return 1
      fi
      if [[ -z ${KUBECONFIG:-} ]]; then # its images for Spark take jars by Maven
        java_and_maven || return 1
      fi
      if ! make --no-print-directory helm kubernetes || ! tools/prometheus/fetch.sh >/dev/null; then
        reason="helm, kubectl or Prometheus could not be had: see above (tools/helm, tools/kubernetes, tools/prometheus)"
        return 1
      fi
      ;;
    integration)
      apt_install kcat kcat && java_and_maven || return 1
      make --no-print-directory java-tools || { reason="Apache Kafka's command-line tools could not be had"; return 1; }
      ;;
    spark)
      java_and_maven || return 1
      if [[ $(java_version) -lt 17 ]]; then
        reason="Java 17 or newer is needed, this is $(java_version)"
        return 1
      fi
      make --no-print-directory spark-venv .cache/spark-jars/.complete || { reason="PySpark or its jars could not be had"; return 1; }
      ;;
  esac
}

run() {
  case $1 in
    lint) make --no-print-directory lint ;; # with tests/test_tidy.py
    search) "$BIN/pytest" "tests/$1" ;;
    # One process of these leaves half of two cores unused. A file's tests stay together: they share what it has started.
    unit | integration | helm | ha) "$BIN/pytest" -n 2 --dist loadfile "tests/$1" ;;
    contract) "$BIN/pytest" -n 2 --dist loadfile tests/cluster tests/contract ;; # the embedded server and a real one
    e2e)
      if [[ -n ${KUBECONFIG:-} ]]; then
        # a cluster of `make kind-up` gets images of the present sources; the tests see whether others have any
        "$BIN/python" -m tests.cluster kind images ${BASE_IMAGE:+--base "$BASE_IMAGE"} && "$BIN/pytest" tests/e2e
      else
        # a cluster of four nodes, gone afterwards; all of it on this machine, so limits of time are doubled
        KAFKALITE_E2E_PATIENCE=${KAFKALITE_E2E_PATIENCE:-2} "$BIN/python" -m tests.cluster kind run --spark -- "$BIN/pytest" tests/e2e
      fi
      ;;
    *) "$BIN/pytest" "tests/$1" ;;
  esac
}

# begin_beside, end_beside: that tier with the lowest priority; what it says, and how it ended, once it has.
begin_beside() {
  mkdir -p .cache
  setsid nice -n 19 "$BIN/python" -m pytest "tests/$BESIDE" >"$BESIDE_LOG" 2>&1 & # a process group, which ends as one
  beside=$!
  echo "the $BESIDE tier runs beside (progress in $BESIDE_LOG)"
}

end_beside() {
  local result
  [[ -n $beside ]] || return 0
  echo
  echo "=== $BESIDE, beside $BESIDE_OF"
  wait "$beside"
  result=$?
  beside=""
  cat "$BESIDE_LOG"
  ended_as "$BESIDE" $result "beside $BESIDE_OF"
}

# ended_as TIER RESULT HOW_LONG
ended_as() {
  local word=passed
  if [[ $2 -ne 0 ]]; then
    word=FAILED
    failed=1
  fi
  summary+=("$(printf '%-12s %s   %6s' "$1" $word "$3")")
}

for tier in "${tiers[@]}"; do
  if [[ " ${ALL[*]} " != *" $tier "* ]]; then
    echo "no tier $tier; there are: ${ALL[*]}" >&2
    exit 2
  fi
done
trap ended EXIT # and by a signal
trap 'exit 130' INT
build_ahead

for tier in "${tiers[@]}"; do
  echo
  echo "=== $tier"
  started=$SECONDS
  if [[ $tier == "$BESIDE" && " ${tiers[*]} " == *" $BESIDE_OF "* ]]; then
    echo "runs beside $BESIDE_OF"
    continue
  fi
  [[ $tier != "$BESIDE_OF" || " ${tiers[*]} " != *" $BESIDE "* ]] || begin_beside
  if prepare "$tier"; then
    run "$tier"
    ended_as "$tier" $? "$((SECONDS - started)) s"
  else
    summary+=("$(printf '%-12s NOT RUN  %s' "$tier" "$reason")")
    [[ ${CI:-} != true ]] || failed=1
  fi
  [[ $tier != "$BESIDE_OF" ]] || end_beside
done

echo
echo "=== tiers"
printf '%s\n' "${summary[@]}"
printf '%-12s %d min %d s\n' "in all" $((SECONDS / 60)) $((SECONDS % 60))
exit $failed
