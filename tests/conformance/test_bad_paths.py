"""Paths in the log that lead out of the table, or nowhere: refused before anything is opened."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from pyspark_delta.errors import UnsafePathError
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import encode_path
from tests.support.bad_tables import (
    ROWS,
    SECRET,
    BadTable,
    Case,
    case_id,
    check,
    check_table,
    listening,
    parquet,
    watched,
)
from tests.support.guarded import GuardedReader
from tests.support.log_builder import add
from tests.support.reading import open_table

UNSAFE = "DELTA_UNSAFE_PATH"
GONE = "DELTA_FILE_NOT_FOUND"

# {outside} is the directory beside the table, {root} the table, both absolute.
ESCAPES = {
    "climbing": "../_outside/o.parquet",
    "climbing, escaped": "%2e%2e/_outside/o.parquet",
    "climbing, escaped slash": "..%2F_outside%2Fo.parquet",
    "climbing, in upper case": "%2E%2E/_outside/o.parquet",
    "climbing, half escaped": ".%2e/_outside/o.parquet",
    "climbing from a directory": "x/../../_outside/o.parquet",
    "climbing from the log": "_delta_log/../../_outside/o.parquet",
    "climbing behind a point": "./../_outside/o.parquet",
    "climbing with backslashes": "..\\_outside\\o.parquet",
    "climbing with escaped backslashes": "..%5C_outside%5Co.parquet",
    "climbing and coming back": "../tä%20ble%20100%25/a.parquet",
    "absolute": "{outside}/o.parquet",
    "absolute, escaped": "{escaped}/o.parquet",
    "absolute, through the root": "{root}/../_outside/o.parquet",
    "absolute, through the root, escaped": "{root_uri}/%2e%2e/_outside/o.parquet",
    "absolute with two slashes": "//{outside}/o.parquet",
    "file URI": "file://{escaped}/o.parquet",
    "file URI with one slash": "file:{escaped}/o.parquet",
    "file URI in upper case": "FILE://{escaped}/o.parquet",
    "file URI of localhost": "file://localhost{escaped}/o.parquet",
    "file URI of another host": "file://127.0.0.1{escaped}/o.parquet",
    "file URI without a slash": "file:o.parquet",
    "file URI that climbs": "{root_uri}/../_outside/o.parquet",
    "file URI with a query": "{root_uri}/a.parquet?x=1",
    "file URI with a fragment": "{root_uri}/a.parquet#x",
    "a neighbour whose name begins like the table's": "{root_uri}2/o.parquet",
    "another scheme, s3": "s3://bucket/x.parquet",
    "another scheme, unknown": "gopher://127.0.0.1/x",
    "another scheme, short": "c:/x.parquet",
    "memory": "memory://x/y.parquet",
    "data": "data:text/plain,x",
    "a NUL": "a\0.parquet",
    "an escaped NUL": "a%00.parquet",
    "a point": ".",
    "two points": "..",
    "a slash": "/",
    "two slashes within": "x//a.parquet",
    "a slash at the end": "a.parquet/",
    "a point within": "./a.parquet",
    "a broken escape": "a%.parquet",
    "an escape of half a letter": "a%C3.parquet",
    "the log": "_delta_log/00000000000000000000.json",
    "the log, escaped": "%5Fdelta_log/..json",
}


def _filled(path: str, table: BadTable) -> str:
    root, outside = os.fspath(table.root), os.fspath(table.outside)
    return (
        path.replace("{root_uri}", table.store.root_uri)
        .replace("{escaped}", quote(outside))
        .replace("{outside}", encode_path(outside))
        .replace("{root}", encode_path(root))
    )


@pytest.mark.parametrize("path", ESCAPES.values(), ids=ESCAPES)
def test_a_path_out_of_the_table_is_refused_and_nothing_is_opened(
    path: str, tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        table.create().commit(add(_filled(path, table)))

    check(Case(name="", build=build, want=UNSAFE), tmp_path, guarded)


@pytest.mark.parametrize("path", ESCAPES.values(), ids=ESCAPES)
def test_one_bad_path_among_many_good_ones_is_refused(
    path: str, tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        # The same directory with and without what is suspicious, which may be looked at at once.
        table.data("_outside/o.parquet")
        table.data("p %/o.parquet")
        table.create().commit(
            add("a.parquet"),
            add("p%20%25/o.parquet"),
            add("_outside/o.parquet"),
            add(_filled(path, table)),
        )

    check(Case(name="", build=build, want=UNSAFE, asks=False), tmp_path, guarded)


def test_no_connection_is_tried(tmp_path: Path, guarded: GuardedReader) -> None:
    for number, scheme in enumerate(("http", "https", "ftp", "s3", "gs", "abfss", "hdfs")):
        with listening() as (port, was_called):
            directory = tmp_path / f"{number}"
            directory.mkdir()
            table = BadTable(directory)
            table.create().commit(add(f"{scheme}://127.0.0.1:{port}/x.parquet"))
            check_table(Case(name=scheme, build=len, want=UNSAFE), table, guarded)
            assert not was_called()


def _link(table: BadTable, name: str, target: str | Path) -> BadTable:
    path = table.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return table


LINKS = [
    Case(
        name="a link to a file outside",
        build=lambda t: _link(t.create(), "l.parquet", t.outside / "o.parquet").commit(
            add("l.parquet")
        ),
        want=UNSAFE,
    ),
    Case(
        name="a relative link to a file outside",
        build=lambda t: _link(t.create(), "x/l.parquet", "../../_outside/o.parquet").commit(
            add("x/l.parquet")
        ),
        want=UNSAFE,
    ),
    Case(
        name="a directory that is a link outside",
        build=lambda t: _link(t.create(), "d", t.outside).commit(add("d/o.parquet")),
        want=UNSAFE,
    ),
    Case(
        name="a link to a link outside",
        build=lambda t: _link(_link(t.create(), "d", t.outside), "l.parquet", "d/o.parquet").commit(
            add("l.parquet")
        ),
        want=UNSAFE,
    ),
    Case(
        name="a link in the log directory to a file outside",
        build=lambda t: _link(t.create(), "_delta_log/l.parquet", t.outside / "o.parquet").commit(
            add("_delta_log/l.parquet")
        ),
        want=UNSAFE,
    ),
    Case(
        name="a directory in the log that is a link outside",
        build=lambda t: _link(t.create(), "_delta_log/d", t.outside).commit(
            add("_delta_log/d/o.parquet")
        ),
        want=UNSAFE,
    ),
    Case(
        name="a link to itself",
        build=lambda t: _link(t.create(), "l.parquet", "l.parquet").commit(add("l.parquet")),
        want=frozenset({UNSAFE, GONE, "DELTA_STORAGE_ERROR", "DELTA_DATA_FILE_UNREADABLE"}),
    ),
    Case(
        name="a link to a file of the table",
        build=lambda t: _link(t.create(), "l.parquet", "a.parquet").commit(add("l.parquet")),
        want=ROWS,
    ),
]


@pytest.mark.parametrize("case", LINKS, ids=case_id)
def test_a_link_does_not_lead_out_of_the_table(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


NAMES = {
    "a space": "a b.parquet",
    "a percent sign": "100%.parquet",
    "a literal %20": "a%20b.parquet",
    "a literal %2e%2e": "%2e%2e.parquet",
    "other letters": "dåta/ファイル/файл.parquet",
    "an emoji": "🦆.parquet",
    "a plus": "a+b.parquet",
    "a colon": "a:b.parquet",
    "a question mark and a hash": "a?b#c.parquet",
    "a quote": "a\"b'c.parquet",
    "a newline": "a\nb.parquet",
    "a leading point": ".hidden/.x.parquet",
    "points": "..a/b../c...parquet",
    "a backslash": "a\\b.parquet",
    "a tilde": "~/x.parquet",
    "braces": "{outside}/$HOME/*.parquet",
    "255 bytes": "x" * 247 + ".parquet",
    "a deep directory": "d/" * 200 + "x.parquet",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_odd_names_are_read(name: str, tmp_path: Path, guarded: GuardedReader) -> None:
    def build(table: BadTable) -> None:
        table.data(name)
        table.create().commit(add(encode_path(name)))

    check(Case(name="", build=build, want=ROWS), tmp_path, guarded)


def test_the_tables_own_absolute_uri_is_inside(tmp_path: Path, guarded: GuardedReader) -> None:
    def build(table: BadTable) -> None:
        table.create().commit(add(f"{table.store.root_uri}/a.parquet"))

    check(Case(name="", build=build, want=ROWS), tmp_path, guarded)


MISSING = [
    Case(
        name="a file that is not there",
        build=lambda t: t.create().commit(add("b.parquet")),
        want=GONE,
        says=("b.parquet",),
    ),
    Case(
        name="a directory",
        build=lambda t: (t.path("d.parquet").mkdir(), t.create().commit(add("d.parquet"))),
        want=GONE,
    ),
    Case(
        name="a file as a directory",
        build=lambda t: t.create().commit(add("a.parquet/b.parquet")),
        want=GONE,
    ),
    Case(
        name="a pipe",
        build=lambda t: (os.mkfifo(t.path("p.parquet")), t.create().commit(add("p.parquet"))),
        want=GONE,
    ),
    Case(
        name="a name of 100,000 letters",
        build=lambda t: t.create().commit(add("x" * 100_000)),
        want=frozenset({"DELTA_STORAGE_ERROR", GONE, "DELTA_DATA_FILE_UNREADABLE"}),
    ),
    Case(
        name="an empty file",
        build=lambda t: t.write("e.parquet", b"").create().commit(add("e.parquet")),
        want="DELTA_DATA_FILE_UNREADABLE",
        says=("e.parquet",),
    ),
    Case(
        name="a file of another kind",
        build=lambda t: t.write("e.parquet", "id,v\n1,a\n").create().commit(add("e.parquet")),
        want="DELTA_DATA_FILE_UNREADABLE",
    ),
    Case(
        name="a file that ends too early",
        build=lambda t: t.write("e.parquet", parquet(ROWS)[:-20]).create().commit(add("e.parquet")),
        want="DELTA_DATA_FILE_UNREADABLE",
    ),
    Case(
        name="a footer of 4 GB",
        build=lambda t: (
            t.write("e.parquet", parquet(ROWS)[:-8] + b"\xff\xff\xff\xffPAR1")
            .create()
            .commit(add("e.parquet"))
        ),
        want="DELTA_DATA_FILE_UNREADABLE",
    ),
]


@pytest.mark.parametrize("case", MISSING, ids=case_id)
def test_a_data_file_that_cannot_be_read_is_named(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


def test_a_place_that_the_caller_allows_is_read(tmp_path: Path) -> None:
    table = BadTable(tmp_path)
    uri = LocalStore(table.outside).root_uri + "/o.parquet"
    table.create(add(uri), add("a.parquet"))
    snapshot = open_table(str(table.root)).snapshot
    found = snapshot.to_table(allowed_roots=[LocalStore(table.outside)]).to_pylist()
    assert sorted(found, key=repr) == sorted([*ROWS, *SECRET], key=repr)
    with pytest.raises(UnsafePathError):
        snapshot.to_table()
    with pytest.raises(UnsafePathError):
        snapshot.to_table(allowed_roots=[LocalStore(table.outside / "below")])


def test_the_watch_sees_what_native_code_opens(tmp_path: Path) -> None:
    """The proof that nothing was opened is worth as much as this."""
    table = BadTable(tmp_path)
    with watched(table.outside) as touched:
        assert touched() == []
        pa.OSFile(os.fspath(table.outside / "o.parquet")).close()
        assert touched() == ["o.parquet"]
