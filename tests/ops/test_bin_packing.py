"""Bins of small files: one partition each, no larger than asked, the same every time."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.log.frames.file_actions import add_files, add_table
from pyspark_delta.kernel.ops.layout.bins import (
    Sizes,
    batches,
    num_bytes,
    plan_auto_compaction,
    plan_compaction,
    plan_in_order,
    plan_rewrite,
)
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import INTEGER, STRING, StructField, StructType

SCHEMA = StructType(
    (StructField("id", INTEGER), StructField("p", INTEGER), StructField("q", STRING))
)
PLAIN = Metadata(id="t", schema_string=format_schema(SCHEMA))
SPLIT = Metadata(id="t", schema_string=format_schema(SCHEMA), partition_columns=("p", "q"))


def add(name: str, size: int, p: str | None = "1", q: str | None = "x", **more: object) -> AddFile:
    return AddFile(
        path=name,
        partition_values={"p": p, "q": q},
        size=size,
        modification_time=0,
        data_change=True,
        **more,  # type: ignore[arg-type]
    )


def names(bins: list[pa.Table]) -> list[list[str]]:
    return [each.column("path").to_pylist() for each in bins]


def vector(cardinality: int) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="i",
        path_or_inline_dv="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        size_in_bytes=40,
        cardinality=cardinality,
    )


def test_small_files_fill_bins_and_large_ones_stay() -> None:
    files = add_table([add("e", 95), add("a", 10), add("d", 60), add("c", 30), add("b", 20)])
    sizes = Sizes(small=90, largest=70)
    assert names(plan_compaction(files, PLAIN, sizes)) == [["a", "b", "c"]]
    assert names(plan_compaction(files, PLAIN, Sizes(small=1000, largest=1000))) == [list("abcde")]
    assert plan_compaction(files, PLAIN, Sizes(small=11, largest=70)) == []


def test_a_bin_is_of_one_partition_compared_by_value() -> None:
    files = add_table(
        [
            add("a", 1),
            add("b", 1, p="01"),  # the same number
            add("c", 1, p=None),
            add("d", 1, p=None, q=""),  # the empty text is null
            add("e", 1, p=None, q=None),
            add("f", 1, p="2"),
        ]
    )
    assert sorted(names(plan_compaction(files, SPLIT, Sizes()))) == [["a", "b"], ["d", "e"]]


def test_files_with_many_deleted_rows_are_due_however_large() -> None:
    stats = '{"numRecords":100}'
    files = add_table(
        [
            add("a", 50, stats=stats, deletion_vector=vector(6)),
            add("b", 50, stats=stats, deletion_vector=vector(5)),
            add("c", 50, deletion_vector=vector(1)),
            add("d", 50),
        ]
    )
    assert names(plan_compaction(files, PLAIN, Sizes(small=10, largest=100))) == [["a", "c"]]


def test_after_a_commit_only_its_partitions_with_many_files_count() -> None:
    files = add_table(
        [add(f"{p}{i}", 10 + i, p=p) for p in ("1", "2", "3", "4") for i in range(int(p))]
    )

    def plan(added: list[str], least: int = 2, most: int = 100) -> list[list[str]]:
        found = plan_auto_compaction(
            files, SPLIT, Sizes(), added=added, least_files=least, most_partitions=most
        )
        return sorted(names(found))

    assert plan(["10", "20", "30"]) == [["20", "21"], ["30", "31", "32"]]
    assert plan(["10", "20", "30"], least=3) == [["30", "31", "32"]]
    assert plan(["20", "30", "40"], most=1) == [["40", "41", "42", "43"]]
    assert plan(["10"]) == plan([]) == plan(["gone"]) == []


def test_a_rewrite_takes_every_file_even_one_that_is_alone() -> None:
    files = add_table([add("c", 90), add("a", 10), add("b", 20, p="2"), add("d", 15)])
    assert names(plan_rewrite(files, PLAIN, 40)) == [["a", "d"], ["b"], ["c"]]
    assert sorted(names(plan_rewrite(files, SPLIT, 40))) == [["a", "d"], ["b"], ["c"]]
    assert sorted(names(plan_rewrite(files, SPLIT))) == [["a", "d", "c"], ["b"]]
    assert names(plan_in_order(files, 100)) == [["c", "a"], ["b", "d"]]
    assert plan_rewrite(files.slice(0, 0), SPLIT) == []


def test_bins_are_committed_in_batches() -> None:
    bins = [add_table([add(str(size), size)]) for size in (50, 10, 200, 20)]
    assert batches(bins, None) == [bins]
    assert [names(each) for each in batches(bins, 80)] == [[["10"], ["20"], ["50"]], [["200"]]]
    assert [names(each) for each in batches(bins, 30)] == [[["10"], ["20"]], [["50"]], [["200"]]]
    assert (batches([], None), batches([], 5)) == ([[]], [])
    assert num_bytes(bins[0].slice(0, 0)) == 0


@given(
    st.lists(st.tuples(st.integers(0, 120), st.sampled_from(["1", "2", None]))),
    st.integers(1, 150),
    st.integers(1, 300),
)
def test_every_plan_keeps_its_promises(
    drawn: list[tuple[int, str | None]], small: int, largest: int
) -> None:
    files = [add(f"f{i}", size, p) for i, (size, p) in enumerate(drawn)]
    bins = plan_compaction(add_table(files), SPLIT, Sizes(small=small, largest=largest))
    planned = [list(add_files(each)) for each in bins]
    for each in planned:
        assert len(each) > 1
        assert len({tuple(file.partition_values.items()) for file in each}) == 1
        assert all(file.size < small for file in each)
        assert sum(file.size for file in each) <= largest
    paths = [file.path for each in planned for file in each]
    assert len(paths) == len(set(paths))
    # Files that were left alone find no other to go with, but for those that fill a bin alone.
    alone = [file for file in files if file.size < small and file.path not in paths]
    for p in {file.partition_values["p"] for file in alone}:
        sizes = sorted(file.size for file in alone if file.partition_values["p"] == p)
        assert all(a + b > largest for a, b in pairwise(sizes))
