#!/usr/bin/env bash
# Makes a virtual environment with what the lock files name, and this package as an editable install.
#
#   scripts/install.sh <directory> [<pyspark version>]
#
# Needs Python 3.11 or newer and nothing else.  PYTHON chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
spark=${2:-}

fail() {
    echo "$*" >&2
    exit 1
}

is_new_enough() {
    command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed: install it, or name it with PYTHON=/path/to/python3."
}

make_venv() {
    # Debian ships venv without pip, in a package of its own.
    if "$1" -c 'import ensurepip' 2>/dev/null; then
        "$1" -m venv "$venv"
    elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
        "$1" -m venv "$venv"
    else
        fail "Python's ensurepip module is missing: install it (Debian: python3-venv)."
    fi
}

# The packages of the lock file $1, without those that the lock file $2 names itself.
locked_without() {
    awk 'FNR == NR { if (/^[^ #]/) { split($1, name, "=="); taken[name[1]] = 1 } next }
         /^[^ #]/ { split($1, name, "=="); skip = (name[1] in taken) }
         !skip' "$2" "$1"
}

pip_install() {
    # --no-deps: the lock is complete, so there is nothing left to resolve.
    # --use-pep517: PySpark comes as a source archive, which pips of different age build differently.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --use-pep517 "$@"
}

python=$(find_python)
[ -x "$venv/bin/pip" ] || make_venv "$python"

if [ -z "$spark" ] || grep -q "^pyspark==$spark " requirements.lock; then
    echo "Installing requirements.lock into $venv ..."
    pip_install --require-hashes -r requirements.lock
else
    lock=requirements-spark-$spark.lock
    [ -f "$lock" ] || fail "There is no $lock: add the version to scripts/lock.sh and run it."
    echo "Installing requirements.lock with PySpark $spark into $venv ..."
    locked_without requirements.lock "$lock" >"$venv/requirements.txt"
    pip_install --require-hashes -r "$venv/requirements.txt" -r "$lock"
fi
# Directories of their own, which the tests of Spark Connect, pandas, polars and DuckDB put on their path.
for group in connect frames; do
    pip_install --require-hashes --upgrade --target "$venv/$group" -r "requirements-$group.lock"
done
pip_install --no-build-isolation --editable .
