#!/usr/bin/env bash
# Tables shared with delta-spark.  A whole run also sees that every row of docs/features.md that is to
# be shown here was.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
export PEERS=required
tests=(-m pytest tests/interop tests/conformance -m "slow or not slow")
# More arguments choose tests, and show a part only.
if [ $# -gt 0 ]; then
  exec "$python" "${tests[@]}" "$@"
fi
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
failed=0
"$python" "${tests[@]}" --junitxml="$reports/interop.xml" || failed=$?
"$python" -m tests.support.proofs interop "$reports/interop.xml" || failed=$?
exit "$failed"
