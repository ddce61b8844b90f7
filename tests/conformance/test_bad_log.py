"""Bad commits and a bad log directory: right rows, or an error that names file, line and reason."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pyspark_delta.errors import UnsupportedProtocolError
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.paths import commit_path
from tests.support.bad_tables import (
    MEGABYTE,
    ROWS,
    BadTable,
    Case,
    add_a,
    case_id,
    check,
)
from tests.support.guarded import GuardedReader
from tests.support.log_builder import add, metadata, remove
from tests.support.reading import open_table

GAP = "DELTA_VERSIONS_NOT_CONTIGUOUS"
OTHER = '{"commitInfo":{"timestamp":1,"operation":"WRITE"}}'
ADD = add_a().json
UNKNOWN_FEATURE = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("telepathy",),
    writer_features=("telepathy",),
)


def _deep(depth: int) -> str:
    return "[" * depth + "]" * depth


def _with_extra_fields(table: BadTable) -> None:
    known = json.loads(ADD)
    known["add"] |= {"futureField": {"a": [1, None]}, "another": 7}
    table.create().commit(json.dumps(known))


FINE = [
    Case(
        name="a byte order mark",
        build=lambda table: table.create().raw(b"\xef\xbb\xbf" + ADD.encode()),
        want=ROWS,
    ),
    Case(name="an empty commit", build=lambda table: table.good().raw(b""), want=ROWS),
    Case(
        name="blank lines",
        build=lambda table: table.create().raw(b"\n  \n\r\n" + ADD.encode() + b"\r\n\n\t\n"),
        want=ROWS,
    ),
    Case(
        name="no final newline",
        build=lambda table: table.create().raw(ADD.encode()),
        want=ROWS,
    ),
    Case(
        name="an unknown action",
        build=lambda table: table.good().commit('{"future":{"path":"x"}}', "{}"),
        want=ROWS,
    ),
    Case(name="unknown fields", build=_with_extra_fields, want=ROWS),
    Case(
        name="an action that is null",
        build=lambda table: table.good().commit('{"add":null,"remove":null}'),
        want=ROWS,
    ),
    Case(
        name="a commitInfo nested 100,000 deep",
        build=lambda table: table.create().commit(
            '{"commitInfo":{"operation":"WRITE","tags":' + _deep(100_000) + "}}", ADD
        ),
        want=ROWS,
    ),
    Case(
        name="a spaced commitInfo nested 100,000 deep",
        build=lambda table: table.create().commit(
            ' { "commitInfo" : {"tags":' + _deep(100_000) + "}}", ADD
        ),
        want=ROWS,
    ),
    Case(
        name="an unknown action nested 100,000 deep",
        build=lambda table: table.create().commit('{"future":' + _deep(100_000) + "}", ADD),
        want=ROWS,
    ),
    Case(
        name="a commitInfo of another shape",
        build=lambda table: table.create().commit('{"commitInfo":[1,{"operation":2}]}', ADD),
        want=ROWS,
    ),
    Case(
        name="a size that is wrong",
        build=lambda table: table.create().commit(add_a(size=add_a().size * 1000)),
        want=ROWS,
    ),
    Case(
        name="a size below zero",
        build=lambda table: table.create().commit(add_a(size=-1)),
        want=ROWS,
    ),
    Case(
        name="sizes whose sum is beyond 64 bits",
        build=lambda table: (
            table.create()
            .commit(add_a(size=2**63 - 1), add("b", size=2**63 - 1))
            .commit(remove("b"))
        ),
        want=ROWS,
    ),
    Case(
        name="the same add twice in a commit",
        build=lambda table: table.create().commit(ADD, ADD),
        want=ROWS,
    ),
    Case(
        name="the same add in two commits",
        build=lambda table: table.create().commit(ADD).commit(ADD),
        want=ROWS,
    ),
    Case(
        name="a remove of an unknown file",
        build=lambda table: table.good().commit(remove("nobody.parquet")),
        want=ROWS,
    ),
    Case(
        name="add and remove of one file in one commit",
        build=lambda table: table.create().commit(ADD, remove("a.parquet")),
        want=[],
    ),
    Case(
        name="remove and add of one file in one commit",
        build=lambda table: table.create().commit(remove("a.parquet"), ADD),
        want=[],
    ),
    Case(
        name="an application id of 1 MB",
        build=lambda table: table.good().commit(
            json.dumps({"txn": {"appId": "ä" * MEGABYTE, "version": 1}})
        ),
        want=ROWS,
    ),
    Case(
        name="100,000 partition values",
        build=lambda table: table.create().commit(
            add_a(partition_values={f"p{i}": "x" * 20 for i in range(100_000)})
        ),
        want=ROWS,
        asks=False,
    ),
    Case(
        name="statistics of 64 MB",
        build=lambda table: table.create().commit(add_a(stats="x" * 64 * MEGABYTE)),
        want=ROWS,
        most_bytes=1024 * MEGABYTE,
        asks=False,
    ),
]


@pytest.mark.parametrize("case", FINE, ids=case_id)
def test_what_is_odd_but_legal_is_read(case: Case, tmp_path: Path, guarded: GuardedReader) -> None:
    check(case, tmp_path, guarded)


def _missing_version_0(table: BadTable) -> None:
    table.good()
    table.path(commit_path(0)).unlink()


def _gap(table: BadTable) -> None:
    table.create().commit(OTHER).commit(ADD)
    table.path(commit_path(1)).unlink()


BROKEN = [
    Case(name="versions 0 and 2 without 1", build=_gap, want=GAP, says=("[0, 2]",)),
    Case(
        name="version 0 missing, no checkpoint",
        build=_missing_version_0,
        want="DELTA_TRUNCATED_TRANSACTION_LOG",
    ),
    Case(
        name="a commit of the last possible version",
        build=lambda table: table.good().write(commit_path(2**63 - 1), ADD),
        want=GAP,
        says=("[0..1, 9223372036854775807]",),
    ),
    Case(
        name="no protocol",
        build=lambda table: table.commit(metadata(), ADD),
        want="DELTA_STATE_RECOVER_ERROR",
        says=("protocol",),
    ),
    Case(
        name="no metadata",
        build=lambda table: table.commit(Protocol(), ADD),
        want="DELTA_STATE_RECOVER_ERROR",
        says=("metadata",),
    ),
    Case(
        name="an empty log directory",
        build=lambda table: table.path("_delta_log").mkdir(),
        want="DELTA_TABLE_NOT_FOUND",
    ),
    Case(name="no log directory", build=lambda table: None, want="DELTA_TABLE_NOT_FOUND"),
    Case(
        name="a log directory that is a file",
        build=lambda table: table.path("_delta_log").write_bytes(b""),
        want="DELTA_TABLE_NOT_FOUND",
    ),
    Case(
        name="reader version 99",
        build=lambda table: table.create(
            add_a(), protocol=Protocol(min_reader_version=99, min_writer_version=99)
        ),
        want="DELTA_INVALID_PROTOCOL_VERSION",
        says=("99",),
    ),
    Case(
        name="reader version -1",
        build=lambda table: table.create(add_a(), protocol=Protocol(min_reader_version=-1)),
        want="DELTA_INVALID_PROTOCOL_VERSION",
    ),
    Case(
        name="reader version 3 without a list of features",
        build=lambda table: table.create(
            add_a(), protocol=Protocol(min_reader_version=3, min_writer_version=7)
        ),
        want="DELTA_INVALID_PROTOCOL",
        says=("readerFeatures",),
    ),
    Case(
        name="an unknown reader feature",
        build=lambda table: table.create(
            add_a(),
            protocol=Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=("deletionVectors", "telepathy"),
                writer_features=("deletionVectors", "telepathy"),
            ),
        ),
        want="DELTA_UNSUPPORTED_FEATURES_FOR_READ",
        says=("telepathy",),
    ),
    Case(
        name="an unknown feature in a later commit",
        build=lambda table: table.good().commit(UNKNOWN_FEATURE),
        want="DELTA_UNSUPPORTED_FEATURES_FOR_READ",
        says=("telepathy",),
    ),
    Case(
        name="a data file that is not there",
        build=lambda table: table.create().commit(add("b.parquet")),
        want="DELTA_FILE_NOT_FOUND",
        says=("b.parquet",),
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=case_id)
def test_a_log_that_breaks_the_protocol_ends_in_a_typed_error(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


def _junk(table: BadTable, count: int) -> None:
    table.good()
    directory = table.path("_delta_log")
    for name in ("0", "1"):
        (directory / name).write_bytes(b"{")
        for i in range(count // 2):  # links: they cost no space
            os.link(directory / name, directory / f"{i:020d}.json.junk{name}")


STRAYS = [
    Case(
        name="a version beyond 64 bits",
        build=lambda table: table.good().write("_delta_log/99999999999999999999.json", "garbage"),
        want=ROWS,
    ),
    Case(
        name="a version of 19 digits",
        build=lambda table: table.good().write("_delta_log/0000000000000000002.json", "garbage"),
        want=ROWS,
    ),
    Case(
        name="a version in other digits",
        build=lambda table: table.good().write("_delta_log/" + "٠" * 19 + "٢.json", "garbage"),
        want=ROWS,
    ),
    Case(
        name="a staged commit",
        build=lambda table: table.good().write(commit_path(2) + "#1", "garbage"),
        want=ROWS,
    ),
    Case(
        name="hidden and temporary files",
        build=lambda table: (
            table.good()
            .write("_delta_log/.00000000000000000001.json.crc", b"\0" * 8)
            .write("_delta_log/_tmp_00000000000000000002.json", "garbage")
            .write("_delta_log/00000000000000000002.json.tmp", "garbage")
        ),
        want=ROWS,
    ),
    Case(
        name="a directory called like a commit",
        build=lambda table: table.good().path(commit_path(2)).mkdir(),
        want=ROWS,
    ),
    Case(
        name="a pipe called like a commit",
        build=lambda table: os.mkfifo(table.good().path(commit_path(2))),
        want=ROWS,
    ),
    Case(
        name="a pipe called like the hint",
        build=lambda table: os.mkfifo(table.good().path("_delta_log/_last_checkpoint")),
        want=ROWS,
    ),
    Case(
        name="a compaction that ends before it begins",
        build=lambda table: table.good().write(
            "_delta_log/00000000000000000001.00000000000000000000.compacted.json", "garbage"
        ),
        want=ROWS,
    ),
    Case(
        name="a compaction beyond the last version",
        build=lambda table: table.good().write(
            "_delta_log/00000000000000000000.09223372036854775807.compacted.json", "garbage"
        ),
        want=ROWS,
    ),
]


@pytest.mark.parametrize("case", STRAYS, ids=case_id)
def test_strays_in_the_log_directory_are_passed_over(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_very_many_strays_are_passed_over_too(
    count: int, tmp_path: Path, guarded: GuardedReader
) -> None:
    case = Case(name="", build=lambda table: _junk(table, count), want=ROWS, asks=False)
    check(case, tmp_path, guarded)


def test_a_refresh_that_meets_an_unknown_feature_says_so(tmp_path: Path) -> None:
    table = BadTable(tmp_path).good()
    log = open_table(str(table.root))
    assert log.snapshot.version == 1
    table.commit(UNKNOWN_FEATURE)
    with pytest.raises(UnsupportedProtocolError, match="telepathy"):
        log.update()


IN_COMMIT_TIMES = {
    "no commitInfo": None,
    "no time": '{"commitInfo":{"operation":"WRITE"}}',
    "a time that is text": '{"commitInfo":{"inCommitTimestamp":"x"}}',
    "a time beyond 64 bits": '{"commitInfo":{"inCommitTimestamp":9223372036854775808}}',
    "the last possible time": '{"commitInfo":{"inCommitTimestamp":9223372036854775807}}',
    "a time below zero": '{"commitInfo":{"inCommitTimestamp":-1}}',
    "a time that goes back": '{"commitInfo":{"inCommitTimestamp":1}}',
}


@pytest.mark.parametrize("info", IN_COMMIT_TIMES.values(), ids=IN_COMMIT_TIMES)
def test_a_bad_in_commit_timestamp_hides_no_rows(
    info: str | None, tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        first = '{"commitInfo":{"inCommitTimestamp":1700000000000}}'
        table.create(first, configuration={"delta.enableInCommitTimestamps": "true"})
        table.commit(*([] if info is None else [info]), ADD)

    check(Case(name="", build=build, want=ROWS), tmp_path, guarded)
