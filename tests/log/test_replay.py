"""Replay against a naive model: a dict from key to the newest action."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.log.frames.action_frame import ActionFrame, have_no_key_in_common
from pyspark_delta.kernel.log.frames.file_actions import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    canonical_paths,
    file_key,
)
from pyspark_delta.kernel.log.frames.json_frames import frames_from_commits
from pyspark_delta.kernel.log.replay import FileState, TableState, replay
from pyspark_delta.kernel.protocol.actions import AddFile, DomainMetadata, RemoveFile
from pyspark_delta.kernel.protocol.domains import tombstone
from tests.support.log_builder import add, remove

ROOT = "memory:///t"
_files = st.tuples(
    st.booleans(), st.sampled_from("abcdef"), st.none() | st.sampled_from(["v1", "v2"])
)


def _live(log: list[list[AddFile | RemoveFile]]) -> dict[tuple[str, str | None], int]:
    """The model: commit by commit, adds first, then removes."""
    live: dict[tuple[str, str | None], int] = {}
    for actions in log:
        for kind in (AddFile, RemoveFile):
            for action in actions:
                vector = action.deletion_vector and action.deletion_vector.unique_id
                key = (action.path, vector)
                if kind is AddFile and isinstance(action, AddFile):
                    live[key] = action.size
                elif kind is RemoveFile and isinstance(action, RemoveFile):
                    live.pop(key, None)
    return live


def _seen(state: FileState) -> dict[tuple[str, str | None], int]:
    found = {}
    for row in state.columns(["path", "deletionVector", "size"]).to_pylist():
        vector = row["deletionVector"]
        key = (row["path"], vector and f"u{vector['pathOrInlineDv']}@{vector['offset']}")
        assert key not in found
        found[key] = row["size"]
    return found


@given(st.lists(st.lists(_files, max_size=6), max_size=12), st.integers(0, 12))
def test_a_state_holds_what_the_naive_model_holds(
    log: list[list[tuple[bool, str, str | None]]], cut: int
) -> None:
    commits: list[list[AddFile | RemoveFile]] = [
        [
            add(name, vector=vector, size=10 * i + j) if is_add else remove(name, vector=vector)
            for j, (is_add, name, vector) in enumerate(commit)
        ]
        for i, commit in enumerate(log)
    ]
    data = [
        (str(i), "".join(a.json + "\n" for a in actions).encode())
        for i, actions in enumerate(commits)
    ]
    whole = replay([], frames_from_commits(data, ROOT))
    assert _seen(whole) == _live(commits)
    assert whole.num_files == len(_live(commits))
    # Commit by commit gives the same as all at once.
    stepwise = replay([], frames_from_commits(data[:cut], ROOT))
    for item in data[cut:]:
        for frame in frames_from_commits([item], ROOT):
            stepwise = stepwise.apply(frame)
    assert _seen(stepwise) == _live(commits)


def test_a_thousand_small_commits_stay_a_few_parts() -> None:
    state = FileState(())
    for i in range(1000):
        data = [(str(i), (add(f"f{i}").json + "\n").encode())]
        [frame] = frames_from_commits(data, ROOT)
        state = state.apply(frame)
    assert state.num_files == 1000
    assert len(state.parts) < 20
    assert state.size_in_bytes == 1000


def test_an_older_state_is_not_touched_by_a_newer_frame() -> None:
    [first] = frames_from_commits([("0", (add("a").json + "\n").encode())], ROOT)
    [second] = frames_from_commits([("1", (remove("a").json + "\n").encode())], ROOT)
    before = replay([], [first])
    after = before.apply(second)
    assert (before.num_files, after.num_files) == (1, 0)


def test_paths_decoded_by_directory_are_those_decoded_one_by_one() -> None:
    paths = [
        "plain",
        "p=a%20b/x",
        "p=a%2520b/y%20z",
        "p=a%20b/é",
        "/abs/t/x",
        "memory:///t/p=a%20b/w",
        "../out%20side",
        "bad%zz/x",
        "a:b/c",
        "%2e%2e/x",
        "d//x%20",
    ]
    array = pa.array(paths)
    expected = [file_key(path, None, ROOT) for path in paths]
    assert canonical_paths(array, ROOT).to_pylist() == expected
    assert canonical_paths(array.slice(1), ROOT).to_pylist() == expected[1:]


@pytest.mark.parametrize(
    ("differs_at", "is_distinct"), [(-60, True), (-40, True), (-15, True), (None, False)]
)
def test_keys_are_compared_whole_where_their_last_bytes_agree(
    differs_at: int | None, is_distinct: bool
) -> None:
    def key(letter: str) -> str:
        text = ["x"] * 64
        if differs_at is not None:
            text[differs_at] = letter
        return "".join(text)

    frame = ActionFrame(
        adds=ADD_SCHEMA.empty_table(),
        removes=REMOVE_SCHEMA.empty_table(),
        add_keys=pa.array([key("a"), key("b")]),
        remove_keys=pa.array([], pa.string()),
        others=(),
    )
    assert have_no_key_in_common([frame]) == is_distinct


def test_the_newest_entry_of_a_domain_counts_and_removed_ones_vanish() -> None:
    a = DomainMetadata(domain="a", configuration="1")
    b = DomainMetadata(domain="b", configuration="1")
    newer = DomainMetadata(domain="a", configuration="2")

    def live(*actions: DomainMetadata) -> dict[str, DomainMetadata]:
        return TableState().apply(actions).live_domains

    assert live(a, b, newer) == {"a": newer, "b": b}
    assert live(a, b, tombstone(a)) == {"b": b}
    assert live(tombstone(a), newer) == {"a": newer}
