"""Footers of files that others wrote: what is believed of them, and what is not."""

from __future__ import annotations

import math
import os
import pickle
import struct
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.kernel.ops.convert import tree_listing
from pyspark_delta.kernel.ops.footers import parquet as parquet_footers
from pyspark_delta.kernel.ops.footers.parquet import (
    FooterBlock,
    StatsRequest,
    footer_blocks,
    read_footer_block,
    read_local_tail,
    unpickled_block,
)
from pyspark_delta.kernel.ops.footers.stats import LayoutStats
from pyspark_delta.kernel.protocol.stats import FileStats, parse_stats
from pyspark_delta.kernel.protocol.stats_columns import stats_columns
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

EVERYTHING = StatsRequest(reads_int96=True)
MR = b"parquet-mr version 1.13.1 (b x)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tä ble 100%"
    made.mkdir()
    return made


def _written(path: Path, table: pa.Table, created_by: bytes | None = None, **options: Any) -> Path:
    """A file of pyarrow's; `created_by` makes it look like another writer's."""
    pq.write_table(table, path, **options)
    if created_by is not None:
        own = pq.read_metadata(path).created_by.encode()
        assert len(created_by) <= len(own)
        data = path.read_bytes()
        path.write_bytes(data.replace(own, created_by.ljust(len(own))))
    return path


def _read(*paths: Path, request: StatsRequest | None = EVERYTHING) -> FooterBlock:
    files = [(str(path), path.stat().st_size) for path in paths]
    return read_footer_block(files, read_local_tail, request)


def _stats(path: Path, **columns: DataType) -> FileStats:
    block = _read(path)
    assert block.files[0].problem is None
    schema = StructType(tuple(StructField(name, kind) for name, kind in columns.items()))
    text = LayoutStats(block.layouts[0], stats_columns(schema)).text(block.files[0])
    parsed = parse_stats(text)
    assert parsed is not None
    return parsed


def _bounds(path: Path, data_type: DataType, name: str = "v") -> tuple[Any, Any, int | None]:
    stats = _stats(path, **{name: data_type})
    return (
        stats.minimum((name,), data_type),
        stats.maximum((name,), data_type),
        stats.null_count((name,)),
    )


def _column(values: list[Any], data_type: pa.DataType) -> pa.Table:
    return pa.table({"v": pa.array(values, data_type)})


@pytest.mark.parametrize(
    ("values", "stored", "data_type", "expected"),
    [
        ([3, None, -1], pa.int8(), SHORT, (-1, 3, 1)),
        ([3, 2**40], pa.int64(), LONG, (3, 2**40, 0)),
        ([1, 2**31 + 5], pa.uint32(), LONG, (1, 2**31 + 5, 0)),
        ([1, 2**63 + 5], pa.uint64(), DecimalType(20, 0), (1, 2**63 + 5, 0)),
        ([1, 200], pa.uint8(), SHORT, (1, 200, 0)),
        ([date(2024, 1, 2)], pa.date32(), DATE, (19724, 19724, 0)),
        ([date(1500, 1, 2), date(2024, 1, 2)], pa.date32(), DATE, (None, 19724, 0)),
        (["b", "ä", None], pa.string(), STRING, ("b", "ä", 1)),
        ([b"\xff", b"a"], pa.binary(), BINARY, (None, None, 0)),
        ([True, None], pa.bool_(), INTEGER, (None, None, 1)),
    ],
)
def test_bounds_are_those_of_the_values(
    folder: Path, values: list[Any], stored: pa.DataType, data_type: DataType, expected: Any
) -> None:
    path = _written(folder / "f.parquet", _column(values, stored))
    assert _bounds(path, data_type) == expected


@pytest.mark.parametrize("stored", ["milliseconds", "microseconds", "nanoseconds"])
def test_timestamps_of_all_units_have_right_bounds_or_none(folder: Path, stored: str) -> None:
    unit = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}[stored]
    moments = [datetime(2024, 1, 1, 0, 0, 0, 5000), datetime(2024, 2, 1)]
    options = {"version": "2.6", "coerce_timestamps": None}
    least, greatest = (int(m.replace(tzinfo=UTC).timestamp() * 10**6) for m in moments)
    utc = _written(folder / "u", _column(moments, pa.timestamp(unit, "UTC")), **options)
    local = _written(folder / "n", _column(moments, pa.timestamp(unit)), **options)
    if unit == "ns":
        assert _bounds(utc, TIMESTAMP) == (None, None, 0)
        assert _bounds(utc, LONG)[0] == least * 1000
        return
    assert _bounds(utc, TIMESTAMP) == (least, greatest + 999, 0)
    assert _bounds(local, TIMESTAMP_NTZ) == (least, greatest + 999, 0)
    assert _bounds(local, TIMESTAMP) == (None, None, 0)


def test_timestamps_before_1900_have_no_lower_bound(folder: Path) -> None:
    moments = [datetime(1850, 1, 1), datetime(2024, 1, 1)]
    path = _written(folder / "f", _column(moments, pa.timestamp("us", "UTC")))
    least, greatest, _ = _bounds(path, TIMESTAMP)
    assert least is None
    assert greatest == 1704067200000999


def test_int96_is_read_for_its_bounds_when_sparks_writer_wrote_it(folder: Path) -> None:
    moments = [None, datetime(2024, 1, 1), datetime(2500, 1, 1)]
    table = pa.table(
        {
            "v": pa.array(moments, pa.timestamp("us")),
            "s": pa.array(
                [None, {"t": moments[1]}, {"t": None}], pa.struct([("t", pa.timestamp("us"))])
            ),
        }
    )
    options = {"use_deprecated_int96_timestamps": True, "row_group_size": 2}
    path = _written(folder / "mr", table, MR, **options)
    assert _bounds(path, TIMESTAMP) == (1704067200000000, 16725225600000999, 1)
    stats = _stats(path, s=StructType((StructField("t", TIMESTAMP),)))
    assert stats.minimum(("s", "t"), TIMESTAMP) == 1704067200000000
    assert stats.null_count(("s", "t")) == 2
    other = _written(folder / "other", table, **options)
    assert _bounds(other, TIMESTAMP)[:2] == (None, None)
    assert _bounds(path, TIMESTAMP_NTZ)[:2] == (None, None)


@pytest.mark.parametrize("as_integer", [True, False])
@pytest.mark.parametrize("precision", [5, 15, 30])
def test_decimals_have_bounds_in_all_their_encodings(
    folder: Path, precision: int, as_integer: bool
) -> None:
    values = [Decimal("-1.50"), Decimal("2.25"), None]
    table = _column(values, pa.decimal128(precision, 2))
    path = _written(folder / "f", table, store_decimal_as_integer=as_integer)
    assert _bounds(path, DecimalType(precision, 2)) == (Decimal("-1.50"), Decimal("2.25"), 1)
    assert _bounds(path, DecimalType(precision, 3))[:2] == (None, None)


def test_nan_hides_from_most_writers_so_there_is_no_upper_bound(folder: Path) -> None:
    table = _column([1.5, math.nan, -2.0], pa.float64())
    assert _bounds(_written(folder / "own", table), DOUBLE) == (-2.0, None, 0)
    plain = _column([1.5, -0.0, 0.0], pa.float32())
    assert _bounds(_written(folder / "mr", plain, MR), FLOAT) == (-0.0, 1.5, 0)
    assert _bounds(_written(folder / "all", _column([math.nan], pa.float64())), DOUBLE)[:2] == (
        None,
        None,
    )


@pytest.mark.parametrize(
    "created_by",
    [
        b"parquet-mr version 1.8.1 (b x)",
        b"parquet-rs version 3.0.0",
        b"fastparquet-python",
        b"Polars",
        b"somebody version 99.1",
        b"",
    ],
)
def test_writers_that_compare_bytes_wrongly_are_not_believed(
    folder: Path, created_by: bytes
) -> None:
    table = pa.table(
        {
            "t": ["a", "ä"],
            "d": pa.array([Decimal("-1"), Decimal("1")], pa.decimal128(30, 0)),
            "u": pa.array([1, 2**31], pa.uint32()),
            "i": [1, 2],
        }
    )
    path = _written(folder / "f", table, created_by)
    stats = _stats(path, t=STRING, d=DecimalType(30, 0), u=LONG, i=LONG)
    assert stats.minimum(("t",), STRING) is None
    assert stats.maximum(("d",), DecimalType(30, 0)) is None
    assert stats.maximum(("u",), LONG) is None
    assert (stats.minimum(("i",), LONG), stats.maximum(("i",), LONG)) == (1, 2)


def test_long_texts_are_cut_and_the_upper_bound_raised(folder: Path) -> None:
    table = _column(["a" * 40, "b" * 40, "ü" * 40], pa.string())
    least, greatest, _ = _bounds(_written(folder / "f", table), STRING)
    assert least == "a" * 32
    assert greatest == "ü" * 32 + "\U0010ffff"


def test_text_cut_inside_of_a_character_is_still_a_lower_bound(folder: Path) -> None:
    path = _written(folder / "f", _column([b"x\xc3\xa4"[:2], b"z\xc3"], pa.binary()))
    layout, footer = (lambda block: (block.layouts[0], block.files[0]))(_read(path))
    schema = StructType((StructField("v", STRING),))
    stats = parse_stats(LayoutStats(layout, stats_columns(schema)).text(footer))
    assert stats is not None
    assert (stats.minimum(("v",), STRING), stats.maximum(("v",), STRING)) == ("x", None)


def test_columns_are_found_by_name_in_structs_ignoring_case(folder: Path) -> None:
    inner = pa.struct([("x.y", pa.int64()), ("Z", pa.int64())])
    table = pa.table({"S": pa.array([{"x.y": 1, "Z": 2}, None], inner), "late": [1, 2]})
    path = _written(folder / "f", table)
    kind = StructType((StructField("x.y", LONG), StructField("z", LONG), StructField("new", LONG)))
    stats = _stats(path, s=kind, missing=STRING, gone=kind)
    assert stats.minimum(("s", "x.y"), LONG) == 1
    assert stats.null_count(("s", "z")) == 1
    assert stats.null_count(("s", "new")) == stats.null_count(("missing",)) == 2
    assert stats.null_count(("gone", "z")) == 2


def test_collections_tell_of_nulls_only_when_there_is_none(folder: Path) -> None:
    table = pa.table(
        {
            "full": pa.array([[1], [2, 3]]),
            "holes": pa.array([[1], [None]]),
            "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "i": [1, 2],
        }
    )
    types = {
        "full": ArrayType(LONG),
        "holes": ArrayType(LONG),
        "m": MapType(STRING, LONG),
        "i": LONG,
    }
    known = _stats(_written(folder / "mr", table, MR), **types)
    assert [known.null_count((name,)) for name in types] == [0, None, None, 0]
    other = _stats(_written(folder / "other", table), **types)
    assert [other.null_count((name,)) for name in types] == [None, None, None, 0]


def test_bounds_span_all_row_groups_and_empty_files_have_none(folder: Path) -> None:
    table = _column([5, 1, None, None, 9, 7], pa.int64())
    path = _written(folder / "f", table, row_group_size=2)
    assert _bounds(path, LONG) == (1, 9, 2)
    empty = _written(folder / "empty", table.slice(0, 0))
    assert _bounds(empty, LONG) == (None, None, 0)
    without = _written(folder / "without", table, write_statistics=False)
    assert _bounds(without, LONG) == (None, None, None)


def test_only_wanted_leaves_are_looked_at(folder: Path) -> None:
    path = _written(folder / "f", pa.table({"a": [1], "B": [2], "c": [3]}))

    def known(request: StatsRequest) -> list[bool]:
        bounds = _read(path, request=request).files[0].bounds
        assert bounds is not None
        return [low is not None for low, _, _ in bounds]

    assert known(StatsRequest(most_leaves=2)) == [True, True, False]
    assert known(StatsRequest(names=frozenset(("b", "c")))) == [False, True, True]
    assert _read(path, request=None).files[0].bounds is None


def test_files_of_one_layout_share_it(folder: Path) -> None:
    one = _written(folder / "one", pa.table({"a": [1]}))
    two = _written(folder / "two", pa.table({"a": [2]}))
    nested = _written(folder / "n1", pa.table({"s": [{"a": 1}]}))
    renamed = _written(folder / "n2", pa.table({"t": [{"a": 1}]}))
    block = _read(one, nested, two, renamed)
    assert [footer.layout for footer in block.files] == [0, 1, 0, 2]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        b"not a parquet file at all",
        b"PAR1" + b"\0" * 20 + struct.pack("<I", 2**31) + b"PAR1",
        b"PAR1" + b"\xff" * 20 + struct.pack("<I", 20) + b"PAR1",
        b"PARE" + b"\0" * 20 + struct.pack("<I", 20) + b"PARE",
    ],
)
def test_a_broken_footer_is_a_problem_of_its_file_alone(folder: Path, data: bytes) -> None:
    bad = folder / "bad"
    bad.write_bytes(data)
    good = _written(folder / "good", pa.table({"a": [1]}))
    missing = folder / "missing"
    files = [(str(bad), len(data)), (str(good), good.stat().st_size), (str(missing), 100)]
    block = read_footer_block(files, read_local_tail, EVERYTHING)
    assert [footer.problem is None for footer in block.files] == [False, True, False]
    assert [footer.is_corrupt for footer in block.files] == [True, False, False]


def test_a_footer_larger_than_one_read_is_read_whole(folder: Path) -> None:
    path = _written(folder / "wide", pa.table({f"column {n:04d}": [n] for n in range(1500)}))
    block = _read(path, request=StatsRequest(most_leaves=10))
    assert block.files[0].num_records == 1
    assert struct.unpack("<I", path.read_bytes()[-8:-4])[0] > parquet_footers.TAIL_BYTES


def test_tasks_need_nothing_of_this_package(folder: Path) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    good = _written(folder / "good", pa.table({"a": ["x"], "i": pa.array([1], pa.int16())}))
    files = [(str(good), good.stat().st_size), (str(folder / "gone"), 50)]
    for module in (parquet_footers, tree_listing):
        cloudpickle.register_pickle_by_value(module)
    task = partial(footer_blocks, tuple(EVERYTHING))
    listing = partial(tree_listing.listed_trees, str(folder))
    sent = folder.parent / "sent"
    sent.write_bytes(cloudpickle.dumps((task, [files], listing, [""])))
    program = (
        "import pickle, sys\n"
        "sys.modules['pyspark_delta'] = None\n"
        "task, blocks, listing, directories = pickle.load(open(sys.argv[1], 'rb'))\n"
        "found = list(task(blocks)), list(listing(directories))\n"
        "pickle.dump(found, open(sys.argv[1], 'wb'))\n"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", program, str(sent)], check=True, env=environment)
    blocks, listed = pickle.loads(sent.read_bytes())
    assert listed[0][0][0] == "good"
    block = unpickled_block(blocks[0])
    assert block.layouts == _read(good).layouts
    assert block.files[0] == _read(good).files[0]
    assert block.files[1].problem is not None


_MOMENTS = st.integers(-(10**15), 10**16)
_KINDS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType, DataType]] = {
    "byte": (st.integers(-128, 127), pa.int8(), SHORT),
    "long": (st.integers(-(2**63), 2**63 - 1), pa.int64(), LONG),
    "unsigned": (st.integers(0, 2**32 - 1), pa.uint32(), LONG),
    "double": (st.floats(), pa.float64(), DOUBLE),
    "text": (st.text(max_size=80), pa.string(), STRING),
    "day": (st.integers(-200_000, 200_000), pa.date32(), DATE),
    "moment": (_MOMENTS, pa.timestamp("us", "UTC"), TIMESTAMP),
    "local": (_MOMENTS.map(lambda n: n // 1000), pa.timestamp("ms"), TIMESTAMP_NTZ),
    "decimal": (
        st.decimals(-(10**16), 10**16, places=2).filter(lambda d: abs(d) < 10**16),
        pa.decimal128(18, 2),
        DecimalType(18, 2),
    ),
}


@pytest.mark.parametrize("kind", _KINDS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_no_value_is_ever_outside_of_its_bounds(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    strategy, stored, data_type = _KINDS[kind]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=20))
    array = pa.array(values, pa.int64()).cast(stored) if _is_moment(kind) else None
    if kind == "day":
        array = pa.array(values, pa.int32()).cast(stored)
    table = pa.table({"v": pa.array(values, stored) if array is None else array})
    path = tmp_path_factory.mktemp("b") / "tä ble 100%.parquet"
    group_size = data.draw(st.integers(1, 20))
    created_by = data.draw(st.sampled_from([None, MR])) if kind != "double" else None
    least, greatest, nulls = _bounds(
        _written(path, table, created_by, row_group_size=group_size), data_type
    )
    factor = 1000 if kind == "local" else 1
    real = [value * factor if factor > 1 else value for value in values if value is not None]
    assert nulls in (None, len(values) - len(real))
    for value in real:
        if isinstance(value, float) and math.isnan(value):
            assert greatest is None
            continue
        assert least is None or least <= value
        assert greatest is None or value <= greatest


def _is_moment(kind: str) -> bool:
    return kind in ("moment", "local")
