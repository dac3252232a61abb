#!/usr/bin/env bash
# What `make down` and `make clean` do where `kafkalite` is not installed (any more): nothing to a cluster that runs, since
# only `kafkalite` stops it in order, and to no folder that `kafkalite up` has not marked as its own.
#   tools/local_without_venv.sh down|clean
set -euo pipefail
readonly verb=$1
readonly home=${KAFKALITE_HOME:-.kafkalite}

refuse() {
  echo "$1; nothing was stopped or removed: run \`make install\` and then \`make $verb\`" >&2
  exit 1
}

# field NAME RECORD: a number of a record of a process.
field() {
  sed -n "s/^ *\"$1\": *\([0-9][0-9]*\),\{0,1\}$/\1/p" "$2" | head -n 1
}

# running: pids of the processes whose records are in the folder; a pid alone may be another process's by now.
running() {
  local record pid stat fields
  for record in "$home"/run/*.json "$home"/run/pods/*.json; do
    [[ -f $record ]] || continue
    pid=$(field pid "$record")
    stat=$(cat "/proc/${pid:-none}/stat" 2>/dev/null) || continue
    read -r -a fields <<<"${stat##*)}" # from the third on
    if [[ ${fields[0]} != [ZX] && ${fields[19]} == "$(field startTime "$record")" ]]; then
      echo "$pid"
    fi
  done
}

pids=$(running)
if [[ -n $pids ]]; then
  refuse "the cluster in $home runs (pid ${pids//$'\n'/, }), and \`kafkalite\`, which stops it, is not installed in .venv"
fi
if [[ $verb == down ]]; then
  echo "nothing runs in $home"
elif [[ ! -e $home ]]; then
  echo "nothing to remove: $home does not exist"
elif [[ ! -f $home/local-cluster ]]; then
  refuse "$home is not marked as a folder that \`kafkalite up\` has made"
else
  # What cli/kafkalite_cli/local_mode/folder.py names, the marker last.
  (cd "$home" && rm -rf logs manifests pods run volumes &&
    rm -f kubeconfig kubeconfig.*.new control-plane.db{,-wal,-shm,-journal} port-base .port-base.*.tmp up.lock local-cluster)
  if rmdir "$home" 2>/dev/null; then
    echo "removed $home"
  else
    echo "removed the cluster in $home; what else is in the folder stays"
  fi
fi
