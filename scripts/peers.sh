#!/usr/bin/env bash
# Prepares the engine that our tables are compared with: delta-spark on the newest Spark it runs on.
#
#   scripts/peers.sh [<directory>]        default: .venv-peers
#
# The directory becomes a virtual environment with PySpark 4.2.0 and everything else the lock files
# name (deltalake among it), this package as an editable install, the Python package delta-spark, and
# in jars/ the JARs of delta-spark that PySpark does not bring itself.  A session there is delta-spark's with
#
#   spark.jars                       every file in .venv-peers/jars, joined by commas
#   spark.sql.extensions             io.delta.sql.DeltaSparkSessionExtension
#   spark.sql.catalog.spark_catalog  org.apache.spark.sql.delta.catalog.DeltaCatalog
#
# tests/support/peer.py starts one and talks with it.  A second run finds everything done and returns at
# once.  The JARs come from Maven Central through mvn where there is one, else through Spark's own Ivy.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-.venv-peers}
spark=4.2.0
delta=4.4.0
package=io.delta:delta-spark_4.2_2.13:$delta
stamp=$venv/.prepared

# What the environment is made of: any change of it prepares the environment anew.
fingerprint() {
    # The module that starts with Python is copied into an environment.
    cat requirements.lock "requirements-spark-$spark.lock" scripts/peers.lock scripts/peers.sh src/_pyspark_delta_startup.py
}

with_maven() {
    local pom=$venv/peers-pom
    mkdir -p "$pom"
    IFS=: read -r group artifact version <<<"$package"
    cat >"$pom/pom.xml" <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId>
  <artifactId>peers</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>$group</groupId>
      <artifactId>$artifact</artifactId>
      <version>$version</version>
    </dependency>
  </dependencies>
</project>
END
    mvn --batch-mode --log-file "$pom/log" --file "$pom/pom.xml" dependency:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$(realpath "$1")" || { tail -n 20 "$pom/log" >&2; return 1; }
}

with_ivy() {
    local ivy jar name
    ivy=$(realpath "$venv")/ivy
    "$venv/bin/python" - "$package" "$ivy" >"$venv/ivy.log" 2>&1 <<'END' || { tail -n 20 "$venv/ivy.log" >&2; return 1; }
import sys

from pyspark.sql import SparkSession

package, ivy = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.jars.packages", package).config("spark.jars.ivy", ivy).getOrCreate().stop()
END
    # Ivy puts the group before the name: io.delta_delta-storage-4.4.0.jar.
    for jar in "$ivy"/jars/*.jar; do
        name=$(basename "$jar")
        cp "$jar" "$1/${name#*_}"
    done
}

# A second copy of a library that Spark has, in another version, breaks the session in strange places.
drop_what_spark_has() {
    local jar name
    for jar in "$1"/*.jar; do
        name=$(basename "$jar" .jar)
        name=${name%-[0-9]*}
        if compgen -G "$2/$name-[0-9]*.jar" >/dev/null; then
            rm "$jar"
        fi
    done
}

fetch_jars() {
    local new=$venv/jars.new
    rm -rf "$new" && mkdir -p "$new"
    if ! { command -v mvn >/dev/null && with_maven "$new"; }; then
        with_ivy "$new"
    fi
    drop_what_spark_has "$new" "$("$venv/bin/python" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')/jars"
    rm -rf "$venv/jars" && mv "$new" "$venv/jars"
}

# Two runs at once would write one environment: the second waits, and finds it done.
mkdir -p "$venv"
exec 9>"$venv/.lock"
flock 9
if [ -f "$stamp" ] && cmp -s <(fingerprint) "$stamp"; then
    exit 0
fi
scripts/ensure-java.sh
scripts/install.sh "$venv" "$spark"
echo "Installing delta-spark $delta with its JARs into $venv ..."
# --no-deps: delta-spark asks for a PySpark, which is there.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r scripts/peers.lock
fetch_jars
fingerprint >"$stamp"
