#!/usr/bin/env bash
# The test suite as two runs beside each other: tests with the shared Spark session, and all others.
# Most of the time a test of Spark's uses one core, so the second run is nearly free.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
# More arguments choose tests, which are few then: one run.
if [ $# -gt 0 ]; then
  exec "$python" -m pytest -m "not slow" "$@"
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
"$python" -m pytest -m "not slow" --ignore=tests/spark -p no:cacheprovider >"$logs/others" 2>&1 &
others=$!
# Whoever stops this run stops both.
trap 'kill "$others" 2>/dev/null || true; rm -rf "$logs"' EXIT
failed=0
"$python" -m pytest -m "not slow" tests/spark || failed=$?
wait "$others" || failed=$?
cat "$logs/others"
exit "$failed"
