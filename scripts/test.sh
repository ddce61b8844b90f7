#!/usr/bin/env bash
# The test suite as two runs beside each other: most of the tests with the shared Spark session, and
# the rest of them with all others.  A test of Spark's uses little more than one core.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
# DOOR=connect: the session that tests share is one of a client, with a server of ours.
if [ "${DOOR:-}" = connect ]; then
  # The rooms whose tests run through both doors.
  rooms="sql api"
  if [ $# -eq 0 ]; then
    # shellcheck disable=SC2086  # one word for each room
    set -- $(printf 'tests/spark/%s ' $rooms)
  fi
  exec "$python" -m pytest -m "not slow and not classic" "$@"
fi
# More arguments choose tests, which are few then: one run.
if [ $# -gt 0 ]; then
  exec "$python" -m pytest -m "not slow" "$@"
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# The rooms of tests/spark that go with the others, so that both runs take about as long.
with_others="api changes conf files results rules session sql streaming tables"
not_with_others=()
not_by_itself=()
for room in tests/spark/*/; do
  case " $with_others " in
    *" $(basename "$room") "*) not_by_itself+=("--ignore=$room") ;;
    *) not_with_others+=("--ignore=$room") ;;
  esac
done
"$python" -m pytest -m "not slow" "${not_with_others[@]}" \
  -p no:cacheprovider --junitxml="$logs/others.xml" >"$logs/others" 2>&1 &
others=$!
# Whoever stops this run stops both.
trap 'kill "$others" 2>/dev/null || true; rm -rf "$logs"' EXIT
failed=0
"$python" -m pytest -m "not slow" "${not_by_itself[@]}" \
  --junitxml="$logs/spark.xml" tests/spark || failed=$?
wait "$others" || failed=$?
cat "$logs/others"
# What docs/features.md claims must have been shown by one of the two.
"$python" -m tests.support.proofs test "$logs/others.xml" "$logs/spark.xml" || failed=$?
exit "$failed"
