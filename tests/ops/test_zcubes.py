"""ZCubes: what a clustered table's OPTIMIZE takes up again, and what it leaves alone."""

from __future__ import annotations

from pyspark_delta.kernel.log.frames.file_actions import add_files, add_table
from pyspark_delta.kernel.ops.layout.bins import (
    PROVIDER,
    ClusteringPlan,
    CubeSizes,
    FileCount,
    ZCube,
    plan_clustering,
)
from pyspark_delta.kernel.protocol.actions import AddFile

SIZES = CubeSizes(sealed=100, target=150)
COLUMNS = ("a", "s.b")


def add(
    name: str,
    size: int,
    cube: str | None = None,
    columns: tuple[str, ...] = COLUMNS,
    provider: str | None = PROVIDER,
    tags: dict[str, str] | None = None,
) -> AddFile:
    if cube is not None:
        tags = {"other": "x", **ZCube(id=cube, columns=columns).tags}
    return AddFile(
        path=name,
        size=size,
        modification_time=0,
        data_change=True,
        tags=tags,
        clustering_provider=None if cube is None else provider,
    )


def plan(*files: AddFile, is_full: bool = False) -> ClusteringPlan:
    return plan_clustering(add_table(files), COLUMNS, SIZES, is_full=is_full)


def names(found: ClusteringPlan) -> list[list[str]]:
    return [[file.path for file in add_files(each)] for each in found.bins]


def test_new_files_and_small_cubes_are_merged_and_sealed_cubes_are_left() -> None:
    found = plan(
        add("large", 60, "1"),
        add("new", 5),
        add("large too", 40, "1"),
        add("small", 99, "2"),
        add("tagged", 6, tags={"other": "y"}),
    )
    assert names(found) == [["new", "tagged", "small"]]
    assert found.in_cubes == FileCount(num_files=3, num_bytes=199)
    assert found.others == FileCount(num_files=2, num_bytes=11)
    assert found.num_cubes == 2
    assert found.merged == FileCount(num_files=3, num_bytes=110)


def test_one_small_cube_alone_has_nothing_to_be_merged_with() -> None:
    one = plan(add("a", 10, "1"), add("b", 20, "1"))
    assert (names(one), one.merged) == ([], FileCount())
    assert names(plan(add("a", 10, "1"), add("b", 20, "2"))) == [["a", "b"]]
    assert names(plan(add("a", 10, "1"), add("b", 200, "2"))) == []
    assert names(plan()) == []


def test_cubes_by_other_columns_are_for_a_full_run() -> None:
    files = (add("old", 10, "1", ("z",)), add("new", 5), add("other's", 7, "3", provider="own"))
    part = plan(*files)
    assert names(part) == [["new"]]
    assert part.in_cubes == FileCount(num_files=1, num_bytes=7)
    assert (part.others.num_files, part.num_cubes) == (2, 1)
    full = plan(*files, is_full=True)
    assert names(full) == [["new", "old", "other's"]]
    assert full.in_cubes == FileCount(num_files=2, num_bytes=17)
    # Nothing is by other columns: a full run leaves a sealed cube, and one that is alone.
    assert names(plan(add("a", 10, "1"), is_full=True)) == []
    assert names(plan(add("a", 200, "1"), add("b", 5), is_full=True)) == [["b"]]


def test_bins_are_as_large_as_cubes_may_get() -> None:
    files = [add(f"f{number}", 60) for number in range(5)]
    assert [len(each) for each in names(plan(*files))] == [2, 2, 1]


def test_tags_that_mean_nothing_are_cubes_by_other_columns() -> None:
    broken = add("a", 10, tags={"ZCUBE_ID": "1", "ZCUBE_ZORDER_BY": "{"})
    half = add("b", 10, tags={"ZCUBE_ID": "2"})
    assert names(plan(broken, half)) == [["b"]]
