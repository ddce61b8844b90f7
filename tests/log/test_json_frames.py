"""Commits as frames: both ways of reading give the same, and say the same of what is wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import CorruptLogError
from pyspark_delta.kernel.log.frames import json_frames
from pyspark_delta.kernel.log.frames.action_frame import ActionFrame
from pyspark_delta.kernel.log.frames.commit_lines import actions_from_json
from pyspark_delta.kernel.log.frames.json_frames import (
    frame_by_arrow,
    frame_from_json,
    frames_from_commits,
)
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol, SetTransaction
from tests.support.log_builder import add, metadata, remove

ROOT = "file:///tmp/t%C3%A4%20ble"


def by_arrow(data: bytes) -> ActionFrame | None:
    frame = frame_by_arrow("c.json", data, ROOT)
    return frame if frame is None else frame.reconciled()


def by_line(data: bytes) -> ActionFrame:
    return json_frames.frame_by_line([("c.json", data)], ROOT)


def lines(*actions: object) -> bytes:
    return "".join(a if isinstance(a, str) else a.json + "\n" for a in actions).encode()


def content(frame: ActionFrame) -> tuple[object, ...]:
    return (
        [_row(row) for row in frame.adds.to_pylist()],
        [_row(row) for row in frame.removes.to_pylist()],
        frame.add_keys.to_pylist(),
        frame.remove_keys.to_pylist(),
        frame.others,
    )


def _row(row: dict[str, object]) -> dict[str, object]:
    maps = ("partitionValues", "tags")
    return {k: dict(v) if k in maps and v is not None else v for k, v in row.items()}  # type: ignore[call-overload]


_names = st.sampled_from(["a", "b", "c d", "p=1/é", "q%2520", "part-0%20", "f", "g"])
_values = st.none() | st.sampled_from(["1", "", "x}y", 'quo"te', "ü", "__HIVE"])
_vectors = st.none() | st.sampled_from(["v1", "v2"])


@st.composite
def commits(draw: st.DrawFn) -> bytes:
    keys = draw(st.sampled_from([(), ("p",), ("p", "q ü")]))
    actions: list[object] = []
    if draw(st.booleans()):
        actions += [Protocol(), metadata()]
    for _ in range(draw(st.integers(0, 8))):
        name, vector = draw(_names), draw(_vectors)
        if draw(st.booleans()):
            extra = draw(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "base_row_id": st.integers(0, 9),
                        "default_row_commit_version": st.integers(0, 9),
                        "clustering_provider": st.just("liquid"),
                        "tags": st.dictionaries(st.sampled_from("xy"), st.text(max_size=2)),
                        "stats": st.sampled_from(['{"numRecords":1}', "broken", ""]),
                    },
                )
            )
            actions.append(
                add(
                    name,
                    partition_values={key: draw(_values) for key in keys},
                    vector=vector,
                    size=draw(st.integers(0, 2**40)),
                    **extra,
                )
            )
        else:
            actions.append(remove(name, vector=vector))
    if draw(st.booleans()):
        actions.append(SetTransaction(app_id="q", version=1))
    return lines(*actions)


@given(commits())
def test_arrow_reads_what_the_lines_say_or_leaves_it_to_them(data: bytes) -> None:
    frame = by_arrow(data)
    if frame is not None:
        assert content(frame) == content(by_line(data))


def test_arrow_does_read_an_ordinary_commit() -> None:
    actions = [add(f"p={i % 3}/f{i}", partition_values={"p": str(i % 3)}) for i in range(500)]
    gone = remove("gone", partition_values={"p": "1"})
    txn = SetTransaction(app_id="a", version=1)
    data = lines(Protocol(), metadata(), *actions, gone, txn)
    frame = by_arrow(data)
    assert frame is not None
    assert content(frame) == content(by_line(data))
    assert [type(a) for a in frame.others] == [Protocol, Metadata, SetTransaction]


def test_arrow_leaves_a_missing_partition_key_to_the_lines() -> None:
    one = add("a", partition_values={"p": None})
    other = add("b", partition_values={})
    assert by_arrow(lines(one, other)) is None
    assert by_line(lines(one, other)).adds.column("partitionValues").to_pylist() == [
        [("p", None)],
        [],
    ]


def test_arrow_leaves_a_key_that_its_sample_did_not_show_to_the_lines() -> None:
    plain = [add(f"f{i}") for i in range(1000)]
    odd = add("odd", base_row_id=7)
    data = lines(*plain[:500], odd, *plain[500:])
    assert by_arrow(data) is None
    rows = by_line(data).adds.to_pylist()
    assert [row["baseRowId"] for row in rows if row["path"] == "odd"] == [7]


def test_the_last_of_two_adds_of_one_file_counts() -> None:
    for read in (by_line, by_arrow):
        frame = read(lines(add("a", size=1), add("b"), add("a", size=2)))
        assert frame is not None
        assert {r["path"]: r["size"] for r in frame.adds.to_pylist()} == {"a": 2, "b": 1}


def test_a_remove_beats_an_add_of_the_same_file_in_one_commit_wherever_it_stands() -> None:
    for order in ([add("a"), remove("a")], [remove("a"), add("a")]):
        for read in (by_line, by_arrow):
            frame = read(lines(*order))
            assert frame is not None
            assert frame.adds.num_rows == 0
            assert frame.removes.num_rows == 1


def test_a_vector_update_is_a_remove_and_an_add_of_one_path() -> None:
    for read in (by_line, by_arrow):
        frame = read(lines(remove("a"), add("a", vector="v1")))
        assert frame is not None
        assert frame.adds.num_rows == 1
        assert frame.add_keys.to_pylist() == ["a\0uv1@1"]
        assert frame.remove_keys.to_pylist() == ["a"]


def test_keys_are_decoded_once_and_relative_where_they_can_be() -> None:
    spellings = ["a%20b", "file:///tmp/t%C3%A4%20ble/a%20b", "/tmp/t%C3%A4%20ble/a%20b"]
    keys = by_line(lines(*(add(path) for path in spellings))).add_keys.to_pylist()
    assert keys == ["a b"]
    assert by_line(lines(add("p=a%2520b/x"))).add_keys.to_pylist() == ["p=a%20b/x"]


def test_small_neighbours_share_a_frame_and_the_newest_wins() -> None:
    [frame] = frames_from_commits(
        [
            ("0", lines(add("a", size=1), add("b"))),
            ("1", lines(remove("a"))),
            ("2", lines(add("a", size=3), remove("b"))),
        ],
        ROOT,
    )
    assert [(r["path"], r["size"]) for r in frame.adds.to_pylist()] == [("a", 3)]
    assert frame.remove_keys.to_pylist() == ["b"]


def test_a_large_commit_is_a_frame_of_its_own() -> None:
    large = lines(*(add(f"f{i}", stats='{"numRecords":1}') for i in range(5000)))
    assert len(large) > json_frames.LARGE_COMMIT_BYTES
    frames = list(frames_from_commits([("0", lines(add("a"))), ("1", large)], ROOT))
    assert [frame.num_rows for frame in frames] == [1, 5000]


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b'{"add":{"path":"x"', 1, "not JSON"),
        (b"garbage\n", 1, "not JSON"),
        (b'{"txn":{"appId":"a","version":1}}\n\xff\xfe\n', 2, "UTF-8"),
        (b"[1,2]\n", 1, "not a JSON object"),
        (b"\0\0\0\0", 1, "not JSON"),
        (
            b'{"add":{"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}',
            1,
            "path",
        ),
        (
            b'{"add":{"path":"x","size":"a","modificationTime":1,"dataChange":true}}',
            1,
            "whole number",
        ),
        (b'{"add":{"path":"","size":1,"modificationTime":1,"dataChange":true}}', 1, "empty path"),
        (b'{"add":[]}', 1, "not an object"),
        (b'\n\n{"protocol":{"minReaderVersion":"x"}}', 3, "whole number"),
        (
            b'{"add":{"path":"\\ud800","size":1,"modificationTime":1,"dataChange":true}}',
            1,
            "surrogate",
        ),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_reason(
    data: bytes, line: int, reason: str
) -> None:
    padding = b"".join(add(f"f{i}").json.encode() + b"\n" for i in range(10_000))
    for content_, extra in ((data, 0), (padding + data, 10_000)):
        with pytest.raises(CorruptLogError) as caught:
            frame_from_json("_delta_log/7.json", content_, ROOT)
        assert caught.value.condition == "DELTA_MALFORMED_LOG_ENTRY"
        assert caught.value.parameters["path"] == "_delta_log/7.json"
        assert int(caught.value.parameters["line"]) == line + extra
        assert reason in caught.value.parameters["reason"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n  \n",
        b'\xef\xbb\xbf{"add":{"path":"x","size":1,"modificationTime":1,"dataChange":true}}',
        b'{"unknown":{"a":1}}\n{}\n',
        b'{"add":null,"remove":null}\n',
        b'{"commitInfo":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}\n",
    ],
)
def test_odd_but_legal_commits_are_read(data: bytes) -> None:
    frame = frame_from_json("c.json", data, ROOT)
    assert frame.num_rows in (0, 1)


def test_every_action_of_a_commit_comes_back_in_order() -> None:
    actions = [Protocol(), metadata(), add("a"), remove("b"), SetTransaction(app_id="q", version=2)]
    assert list(actions_from_json("c", lines(*actions, '{"unknown":1}\n'))) == actions


def test_unknown_fields_do_not_hide_a_file() -> None:
    value = json.loads(add("a").json)
    value["add"]["new field"] = {"deep": [1]}
    assert by_line((json.dumps(value) + "\n").encode()).adds.num_rows == 1
