"""Bad V2 checkpoints and sidecars: done without, and none leads out of its directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_delta.kernel.protocol.paths import uuid_checkpoint_path
from tests.support.bad_tables import (
    ROWS,
    UUID,
    V2_PROTOCOL,
    BadTable,
    Case,
    case_id,
    check,
    parquet_of,
    with_history,
)
from tests.support.guarded import GuardedReader
from tests.support.log_builder import metadata

BROKEN = "DELTA_MALFORMED_CHECKPOINT"
UNSAFE = "DELTA_UNSAFE_PATH"
V2_JSON = uuid_checkpoint_path(2, UUID, "json")
OWN = '{"checkpointMetadata":{"version":2}}'
V2_PARQUET = uuid_checkpoint_path(2, UUID, "parquet")


def _v2(table: BadTable, *sidecars: str, **sidecar: bytes) -> None:
    """A V2 checkpoint in JSON that names `sidecars`; `sidecar` gives files their content."""
    with_history(table)
    lines = [
        OWN,
        V2_PROTOCOL.json,
        metadata().json,
        *(
            json.dumps({"sidecar": {"path": p, "sizeInBytes": 1, "modificationTime": 1}})
            for p in sidecars
        ),
    ]
    table.write(V2_JSON, "\n".join(lines))
    for name, data in sidecar.items():
        table.write(f"_delta_log/_sidecars/{name}.parquet", data)


def _sidecar(path: str = "a.parquet", **more: Any) -> bytes:
    columns = {
        "add": pa.array([{"path": path, "size": 1, "modificationTime": 1, "dataChange": True}])
    }
    return parquet_of(pa.table({**columns, **{k: pa.array([v]) for k, v in more.items()}}))


def _with_link(table: BadTable) -> None:
    _v2(table, "link.parquet")
    table.path("_delta_log/_sidecars").mkdir()
    (table.outside / "s.parquet").write_bytes(_sidecar("../_outside/o.parquet"))
    table.path("_delta_log/_sidecars/link.parquet").symlink_to(table.outside / "s.parquet")


ESCAPES = {
    "climbing": "../../../_outside/o.parquet",
    "climbing, escaped": "..%2F..%2F..%2F_outside%2Fo.parquet",
    "climbing from its directory": "_delta_log/_sidecars/../../../_outside/o.parquet",
    "with a backslash": "..\\..\\..\\_outside\\o.parquet",
    "absolute": "{outside}/o.parquet",
    "a URI": "file://{outside}/o.parquet",
    "another host": "//127.0.0.1/x.parquet",
    "another scheme": "http://127.0.0.1:9/x.parquet",
    "the log directory": "_delta_log/00000000000000000002.json",
    "a data file": "./a.parquet",
    "itself": f"_delta_log/{2:020d}.checkpoint.{UUID}.json",
    "a NUL": "a\0b.parquet",
    "a point": ".",
    "two points": "..",
    "a broken escape": "%zz.parquet",
}


@pytest.mark.parametrize("path", ESCAPES.values(), ids=ESCAPES)
def test_a_sidecar_outside_of_its_directory_is_refused(
    path: str, tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        _v2(table, path.replace("{outside}", os.fspath(table.outside)))

    check(Case(name="", build=build, want=UNSAFE), tmp_path, guarded)


SIDECARS = [
    Case(name="right", build=lambda t: _v2(t, "s.parquet", s=_sidecar()), want=ROWS),
    Case(
        name="a sidecar is missing",
        build=lambda t: _v2(t, "nobody.parquet"),
        want=ROWS,
        warns=("nobody.parquet",),
    ),
    Case(
        name="a sidecar is damaged",
        build=lambda t: _v2(t, "s.parquet", s=_sidecar()[:-5]),
        want=ROWS,
        warns=("s.parquet",),
    ),
    Case(
        name="a sidecar is named twice",
        build=lambda t: _v2(t, "s.parquet", "_delta_log/_sidecars/s.parquet", s=_sidecar()),
        want=ROWS,
        warns=("twice",),
    ),
    Case(
        name="a sidecar with an empty name",
        build=lambda t: _v2(t, ""),
        want=frozenset({UNSAFE, BROKEN}),
    ),
    Case(name="a sidecar that is a link outside", build=_with_link, want=UNSAFE),
    Case(
        name="a sidecar that names itself",
        build=lambda t: _v2(
            t, "s.parquet", s=_sidecar(sidecar={"path": "s.parquet", "sizeInBytes": 1})
        ),
        want=ROWS,
    ),
    Case(
        name="two sidecars that name each other",
        build=lambda t: _v2(
            t,
            "s.parquet",
            "t.parquet",
            s=_sidecar(sidecar={"path": "t.parquet", "sizeInBytes": 1}),
            t=_sidecar("gone.parquet", sidecar={"path": "s.parquet", "sizeInBytes": 1}),
        ),
        want="DELTA_FILE_NOT_FOUND",
    ),
    Case(
        name="30,000 sidecars that are not there",
        build=lambda t: _v2(t, *(f"s{i}.parquet" for i in range(30_000))),
        want=ROWS,
        asks=False,
    ),
    Case(
        name="no checkpointMetadata",
        build=lambda t: with_history(t).write(V2_JSON, V2_PROTOCOL.json),
        want=ROWS,
        warns=("checkpointMetadata",),
    ),
    Case(
        name="half of a line",
        build=lambda t: with_history(t).write(
            V2_JSON, '{"checkpointMetadata":{"version":2}}\n{"pro'
        ),
        want=ROWS,
        warns=("line 2",),
    ),
    Case(
        name="garbage under a Parquet name",
        build=lambda t: with_history(t).write(V2_PARQUET, "{"),
        want=ROWS,
        warns=(V2_PARQUET,),
    ),
]


@pytest.mark.parametrize("case", SIDECARS, ids=case_id)
def test_a_bad_v2_checkpoint_is_done_without(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)
