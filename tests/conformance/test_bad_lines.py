"""Bad lines in a commit: an error with file, line and byte, however large the commit is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_delta.errors import CorruptLogError
from pyspark_delta.kernel.protocol.paths import commit_path
from tests.support.bad_tables import ROWS, BadTable, Case, add_a, check
from tests.support.guarded import GuardedReader
from tests.support.log_builder import add
from tests.support.reading import open_table

MALFORMED = "DELTA_MALFORMED_LOG_ENTRY"
OTHER = '{"commitInfo":{"timestamp":1,"operation":"WRITE"}}'
ADD = add_a().json
# A commit is named in every message about one.
IN_FILE_1 = (commit_path(1), "line 2")


def _add_with(**changes: object) -> str:
    value = json.loads(ADD)
    value["add"].update(changes)
    return json.dumps({"add": {key: item for key, item in value["add"].items() if item != "-"}})


# Long enough, twice, to be read by blocks and not by lines.
MANY = b"\n".join(add(f"f{i}", stats="x" * 500).json.encode() for i in range(600))


def _protocol(text: str) -> str:
    return '{"protocol":' + text + "}"


BAD_LINES = {
    "truncated": ADD[: len(ADD) // 2].encode(),
    "cut in commitInfo": OTHER[: len(OTHER) - 12].encode(),
    "cut in commitInfo behind a brace": b'{"commitInfo":{"operationParameters":{"mode":"a"}',
    "garbage": b"\x01\x02 not json",
    "not UTF-8": ADD.replace("a.parquet", "\udcff.parquet").encode("utf-8", "surrogateescape"),
    "commitInfo that is not UTF-8": b'{"commitInfo":{"operation":"\xff\xfe"}}',
    "padded with NUL": ADD.encode() + b"\0" * 512,
    "only NUL": b"\0" * 512,
    "an array": b"[" + ADD.encode() + b"]",
    "a string": b'"add"',
    "a number": b"17",
    "two objects": ADD.encode() + ADD.encode(),
    "UTF-16": ADD.encode("utf-16"),
    "half of a surrogate pair": _add_with(path="a\ud800.parquet").encode(),
    "nested 100,000 deep": ('{"add":' + "[" * 100_000 + "]" * 100_000 + "}").encode(),
    "an add that is a list": b'{"add":[1]}',
    "an add that is text": b'{"add":"a.parquet"}',
    "an add without a path": _add_with(path="-").encode(),
    "an add with an empty path": _add_with(path="").encode(),
    "a path that is a number": _add_with(path=7).encode(),
    "a size that is text": _add_with(size="many").encode(),
    "a size beyond 64 bits": _add_with(size=2**63).encode(),
    "a size of 5,000 digits": _add_with().replace('"size": ', '"size": ' + "9" * 5000).encode(),
    "a size of infinity": _add_with(size=float("inf")).encode(),
    "partition values that are a list": _add_with(partitionValues=["a"]).encode(),
    "tags that are text": _add_with(tags="a").encode(),
    "stats that are a number": _add_with(stats=1).encode(),
    "a vector that is text": _add_with(deletionVector="u").encode(),
    "a vector without a size": _add_with(
        deletionVector={"storageType": "u", "pathOrInlineDv": "", "cardinality": 1}
    ).encode(),
    "a vector's offset beyond 32 bits": _add_with(
        deletionVector={
            "storageType": "u",
            "pathOrInlineDv": "",
            "offset": 2**31,
            "sizeInBytes": 1,
            "cardinality": 1,
        }
    ).encode(),
    "a remove without a path": b'{"remove":{"dataChange":true}}',
    "a txn without a version": b'{"txn":{"appId":"a"}}',
    "a domain that is a list": b'{"domainMetadata":[]}',
    "a protocol without versions": _protocol("{}").encode(),
    "a protocol of text": _protocol('{"minReaderVersion":"x","minWriterVersion":2}').encode(),
    "metadata without an id": b'{"metaData":{"schemaString":"{}"}}',
    "partition columns that are text": b'{"metaData":{"id":"a","partitionColumns":"p"}}',
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_ends_in_an_error_with_file_line_and_byte(
    line: bytes, tmp_path: Path, guarded: GuardedReader
) -> None:
    case = Case(
        name="",
        build=lambda table: table.create().commit(OTHER, line, ADD),
        want=MALFORMED,
        says=IN_FILE_1,
    )
    outcome = check(case, tmp_path, guarded)
    at = int(outcome.message.partition("byte ")[2].partition(":")[0])
    assert len(OTHER) + 1 <= at <= len(OTHER) + 1 + len(line)


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_in_a_large_commit_is_found_as_well(
    line: bytes, tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        table.create().commit(MANY, line, MANY)

    case = Case(name="", build=build, want=MALFORMED, says=("line 601",), asks=False)
    check(case, tmp_path, guarded)


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_refresh_that_meets_a_bad_commit_leaves_the_version_before_readable(
    line: bytes, tmp_path: Path
) -> None:
    table = BadTable(tmp_path).good()
    log = open_table(str(table.root))
    assert log.snapshot.num_files == 1
    table.commit(line)
    for _ in range(2):
        with pytest.raises(CorruptLogError, match=MALFORMED):
            log.update()
    assert log.snapshot.version == 1
    assert log.snapshot.to_table().to_pylist() == ROWS
    assert log.snapshot_at(version=1).to_table().to_pylist() == ROWS
