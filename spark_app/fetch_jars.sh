#!/bin/bash
# fetch_jars.sh [DIRECTORY]: copies the Kafka connector of Spark 4.0.0 and what it needs into DIRECTORY
# (default .cache/spark-jars), by Maven coordinates. Does nothing when they are there.
# Each jar is copied alone: that needs no parent POM, which not every closed network can reach.
set -euo pipefail
directory=${1:-$(cd "$(dirname "$0")/.." && pwd)/.cache/spark-jars}
artifacts=(
  org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0
  org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0
  org.apache.kafka:kafka-clients:3.9.0
  org.apache.commons:commons-pool2:2.12.0
)

fail() { echo "error: $1" >&2; exit 1; }

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
command -v "$java" >/dev/null || fail "Spark needs Java 17 or newer, and there is no java (Debian: apt-get install openjdk-17-jre-headless)"
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${version:-0}" -ge 17 ] || fail "Spark needs Java 17 or newer; $java says version ${version:-unknown}"

missing=()
for artifact in "${artifacts[@]}"; do
  IFS=: read -r _ name number <<<"$artifact"
  [ -s "$directory/$name-$number.jar" ] || missing+=("$artifact")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

command -v mvn >/dev/null || fail "Maven is needed once to fetch ${#missing[@]} jars, and there is no mvn (Debian: apt-get install maven)"
mkdir -p "$directory"
for artifact in "${missing[@]}"; do
  echo "fetching $artifact"
  mvn -B -ntp -q dependency:copy "-Dartifact=$artifact" "-DoutputDirectory=$directory" ||
    fail "Maven could not copy $artifact into $directory"
done
