#!/usr/bin/env bash
# Makes .venv-dbt: dbt with its adapter for Spark, and this package as users get it, from a wheel.  An
# editable install would not have the .pth file by which configuration alone enables Delta.
#
#   scripts/dbt.sh <python>
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
venv=.venv-dbt
stamp=$venv/.prepared

pip_install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$@"
}

[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
if ! cmp -s requirements-dbt.lock "$stamp"; then
    echo "Installing requirements-dbt.lock into $venv ..."
    pip_install --use-pep517 --require-hashes -r requirements-dbt.lock
    cp requirements-dbt.lock "$stamp"
fi
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$wheels" .
pip_install --force-reinstall "$wheels"/*.whl
