#!/usr/bin/env bash
# fetch.sh [DIRECTORY]: copies Apache Kafka's command-line tools and what they need into DIRECTORY
# (default .cache/java-tools), by the Maven coordinates of pom.xml. Does nothing when they are there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Absolute: Maven takes a relative path from where the pom is, not from here.
directory=$(realpath -m "${1:-$here/../../.cache/java-tools}")
marker=$directory/fetched

fail() { echo "error: $1" >&2; exit 1; }

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
command -v "$java" >/dev/null || fail "Kafka's tools need Java 17 or newer, and there is no java (Debian: apt-get install openjdk-17-jre-headless)"
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
[[ ${version:-0} -ge 17 ]] || fail "Kafka's tools need Java 17 or newer; $java says version ${version:-unknown}"

if cmp -s "$here/pom.xml" "$marker"; then exit 0; fi

command -v mvn >/dev/null || fail "Maven is needed once to fetch Kafka's tools, and there is no mvn (Debian: apt-get install maven)"
rm -rf "$directory"
mkdir -p "$directory"
echo "fetching Apache Kafka's command-line tools"
mvn -B -ntp -q -f "$here/pom.xml" dependency:copy "-DoutputDirectory=$directory" || fail "Maven could not copy them into $directory"
compgen -G "$directory/kafka-tools-*.jar" >/dev/null || fail "Maven said that it copied Kafka's tools, but they are not in $directory"
cp "$here/pom.xml" "$marker"
