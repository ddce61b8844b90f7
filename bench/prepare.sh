#!/usr/bin/env bash
# Prepares what the benchmark needs beside this package: the peers (.venv-peers), and in .venv-bench the
# generator of its data and the drawer of its chart.  A second run finds everything done.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-bench
stamp=$venv/.prepared
lock=bench/requirements.lock

scripts/peers.sh
if [ -f "$stamp" ] && cmp -s "$lock" "$stamp"; then
    exit 0
fi
echo "Installing $lock into $venv ..."
.venv-peers/bin/python -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$lock"
cp "$lock" "$stamp"
