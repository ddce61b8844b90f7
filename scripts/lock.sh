#!/usr/bin/env bash
# Writes the lock files anew from pyproject.toml: names, versions and hashes, nothing else.
# docs/design/001-lock-file-without-hosts.md says why.  Needs the environment `make install` makes.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
other_sparks=(4.2.0) # beside the one in requirements.lock: `make SPARK=4.2.0 test`

lock() { # reads requirements from standard input; the rest are arguments of uv
    local target=$1
    shift
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
        - "$@" --output-file "$target" >/dev/null
    if grep -n '://' "$target"; then
        echo "$target names a host; packages go by name here." >&2
        exit 1
    fi
}

# The build backend is locked too, with what it asks for when an install is editable: the package
# itself is installed without build isolation.
"$python" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], "editables", sep="\n")' |
    lock requirements.lock pyproject.toml --group dev "$@"
lock requirements-connect.lock --group connect "$@" </dev/null
lock requirements-frames.lock --group frames "$@" </dev/null
# dbt runs Spark in its own process: the package's dependencies are there too, with the same PySpark.
{
    "$python" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'
    sed -n 's/^\(pyspark==[^ ]*\).*/\1/p' requirements.lock
} | lock requirements-dbt.lock pyproject.toml --group dbt "$@"
for spark in "${other_sparks[@]}"; do
    echo "pyspark==$spark" | lock "requirements-spark-$spark.lock" "$@"
done
# The engine we are compared with; what it asks for is there.
echo delta-spark==4.4.0 | lock scripts/peers.lock --no-deps "$@"
