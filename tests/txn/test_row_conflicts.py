"""Two commits on one file: both stand when they depend on different rows of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_delta.errors import (
    CommitStateUnknownError,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    InvalidActionsError,
)
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.protocol.actions import Action, AddFile, CommitInfo, RemoveFile
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, inline_descriptor
from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.scan.predicates.tree import Predicate
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.commit import FileSystemCommitter
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.kernel.txn.vector_files import changed_vector, with_vector, write_vectors
from tests.support.faulty import Fault, FaultRule, FaultStore
from tests.support.interleaving import InterruptibleCommitter
from tests.support.row_commands import deleted_rows, live_file, rows_out, vector_files
from tests.support.transactions import (
    NO_HOOKS,
    TABLE,
    add,
    live_paths,
    memory_log,
    new_table,
    remove,
)

VECTORS = {"delta.enableDeletionVectors": "true"}
WRITE_SERIALIZABLE = {**VECTORS, "delta.isolationLevel": "WriteSerializable"}
A = "part=1/a"
B = "part=1/b"
DELETE_READ = ConcurrentDeleteReadException
DELETE_DELETE = ConcurrentDeleteDeleteException
APPEND = ConcurrentAppendException


def stats(low: int, high: int) -> str:
    return (
        f'{{"numRecords":10,"minValues":{{"id":{low}}},"maxValues":{{"id":{high}}},'
        f'"nullCount":{{"id":0}}}}'
    )


def table(configuration: dict[str, str] | None = None, log: DeltaLog | None = None) -> DeltaLog:
    """Two files of ten rows, ids 0 to 9 and 10 to 19."""
    files = [add(A, stats=stats(0, 9)), add(B, stats=stats(10, 19))]
    return new_table("part", actions=files, configuration=configuration or VECTORS, log=log)


def reading(
    log: DeltaLog, where: str = "part = 1", *, by_row: bool = True
) -> OptimisticTransaction:
    txn = log.start_transaction()
    txn.filter_files(parse_predicate(where), by_row=by_row)
    return txn


def delete(txn: OptimisticTransaction, rows: dict[str, list[int]]) -> int:
    return txn.commit(rows_out(txn, rows), "DELETE").version


def gone(log: DeltaLog, path: str = A) -> list[int]:
    return deleted_rows(log.store, live_file(log, path)).rows_between(0, 10).tolist()


def test_two_deletes_of_other_rows_of_one_file_both_stand() -> None:
    log = table()
    mine, winner = reading(log), reading(log)
    assert delete(winner, {A: [1, 2]}) == 2
    assert delete(mine, {A: [5]}) == 3
    assert gone(log) == [1, 2, 5]
    assert live_paths(log) == [A, B]


def test_what_is_rebased_is_as_if_it_had_come_second() -> None:
    log = table({**VECTORS, "delta.enableRowTracking": "true"})
    mine, winner = reading(log), reading(log)
    delete(winner, {A: [1]})
    theirs = live_file(log, A)
    done = mine.commit(rows_out(mine, {A: [5], B: [7]}), "DELETE")
    removes = {a.path: a for a in done.actions if isinstance(a, RemoveFile)}
    adds = {a.path: a for a in done.actions if isinstance(a, AddFile)}
    assert removes[A].deletion_vector == theirs.deletion_vector
    assert removes[B].deletion_vector is None
    assert removes[A].deletion_timestamp == 5
    assert adds[A] == replace(theirs, deletion_vector=adds[A].deletion_vector)
    assert adds[A].deletion_vector is not None
    assert adds[A].deletion_vector.cardinality == 2
    assert '"tightBounds":false' in (adds[A].stats or "")
    assert adds[A].base_row_id == theirs.base_row_id == 0
    assert adds[A].default_row_commit_version == theirs.default_row_commit_version == 1
    assert gone(log, B) == [7]


def test_the_same_row_is_for_one_of_two_alone() -> None:
    log = table()
    mine, winner = reading(log), reading(log)
    delete(winner, {A: [1, 2]})
    with pytest.raises(APPEND):
        delete(mine, {A: [2, 3]})
    assert gone(log) == [1, 2]


@pytest.mark.parametrize(("low", "is_conflict"), [(6, False), (5, True)])
def test_more_is_found_out_of_a_read_when_a_conflict_hangs_on_it(
    low: int, is_conflict: bool
) -> None:
    log = table()
    asked: list[str] = []

    def narrow() -> Predicate:
        asked.append("id")
        return parse_predicate("id = 5")

    mine = log.start_transaction()
    mine.filter_files(parse_predicate("part = 1"), by_row=True, narrow=narrow)
    delete(reading(log), {A: [1]})
    for path in ("part=1/c", "part=1/d"):
        log.start_transaction().commit([add(path, stats=stats(low, 8))], "WRITE")
    with pytest.raises(APPEND) if is_conflict else nullcontext():
        delete(mine, {A: [5]})
    assert asked == ["id"]
    other = log.start_transaction()
    other.filter_files(parse_predicate("part = 1"), by_row=True, narrow=narrow)
    delete(reading(log), {A: [2]})
    delete(other, {A: [3]})
    assert asked == ["id"]


def test_a_vector_is_put_together_with_those_of_many_winners() -> None:
    log = table()
    mine = reading(log)
    for row in (1, 3, 8):
        delete(reading(log), {A: [row], B: [row]})
    assert delete(mine, {A: [4, 5]}) == 5
    assert gone(log) == [1, 3, 4, 5, 8]
    assert gone(log, B) == [1, 3, 8]


def test_the_last_of_many_winners_may_be_in_the_way() -> None:
    log = table()
    mine = reading(log)
    for row in (1, 3, 5):
        delete(reading(log), {A: [row]})
    with pytest.raises(APPEND) as caught:
        delete(mine, {A: [4, 5]})
    assert caught.value.parameters["version"] == "4"


def test_vectors_that_were_there_before_stay() -> None:
    log = table()
    delete(reading(log), {A: [0]})
    mine, winner = reading(log), reading(log)
    delete(winner, {A: [9]})
    delete(mine, {A: [4]})
    assert gone(log) == [0, 4, 9]


def test_a_file_of_which_no_row_is_left_goes() -> None:
    log = table()
    mine, winner = reading(log), reading(log)
    delete(winner, {A: [0, 1, 2, 3, 4]})
    theirs = live_file(log, A)
    done = mine.commit(rows_out(mine, {A: [5, 6, 7, 8, 9]}), "DELETE")
    assert live_paths(log) == [B]
    assert not any(isinstance(action, AddFile) for action in done.actions)
    (removed,) = (action for action in done.actions if isinstance(action, RemoveFile))
    assert removed.deletion_vector == theirs.deletion_vector
    assert len(vector_files(log.store)) == 1  # the winner's, which an older version needs


def test_only_vectors_that_the_commit_names_are_left() -> None:
    log = table()
    mine = reading(log)
    for row in (1, 3):
        delete(reading(log), {A: [row]})
    before = vector_files(log.store)
    done = mine.commit(rows_out(mine, {A: [5], B: [5]}, prefix="k7"), "DELETE")
    after = set(vector_files(log.store)) - set(before)
    assert len(done.actions) == 5
    # B's is in the first file still, A's is in one beside it.
    assert len(after) == 2
    assert all(path.startswith("k7/") for path in after)
    assert (gone(log), gone(log, B)) == ([1, 3, 5], [5])


def test_a_refused_commit_leaves_only_what_its_caller_wrote() -> None:
    store = MemoryStore(None, TABLE)
    committer = InterruptibleCommitter(store)
    log, other = table(log=memory_log(store, committer=committer)), memory_log(store)
    mine = reading(log)
    delete(reading(other), {A: [1]})
    actions = rows_out(mine, {A: [5]})
    before = vector_files(store)
    attempts = iter([lambda: None, lambda: delete(reading(other), {A: [5]})])
    committer.before = lambda: next(attempts)()  # rebased once, and beaten again
    with pytest.raises(APPEND):
        mine.commit(actions, "DELETE")
    assert next(attempts, None) is None
    assert len(vector_files(store)) == len(before) + 1
    assert gone(other) == [1, 5]


def test_vectors_of_a_commit_of_unknown_outcome_stay() -> None:
    inner = MemoryStore(None, TABLE)
    table(log=memory_log(inner))
    failing = FaultStore(
        inner,
        [
            FaultRule(operation=name, path="*3.json", fault=Fault.ERROR_BEFORE, times=99)
            for name in ("create", "stat")
        ],
    )
    committer = FileSystemCommitter(failing, sleep=lambda _: None)
    mine = reading(memory_log(inner, committer=committer))
    delete(reading(memory_log(inner)), {A: [1]})
    actions = rows_out(mine, {A: [5]})
    before = vector_files(inner)
    with pytest.raises(CommitStateUnknownError):
        mine.commit(actions, "DELETE")
    assert len(vector_files(inner)) == len(before) + 1


# What is in the way all the same.


def by_file(log: DeltaLog) -> OptimisticTransaction:
    return reading(log, by_row=False)


def by_row_and_by_file(log: DeltaLog) -> OptimisticTransaction:
    txn = reading(log)
    txn.filter_files(parse_predicate("id = 3"))
    return txn


def whole_table(log: DeltaLog) -> OptimisticTransaction:
    txn = reading(log)
    txn.read_whole_table()
    return txn


@pytest.mark.parametrize("start", [by_file, by_row_and_by_file, whole_table])
def test_a_file_that_was_read_as_a_whole_is_not_shared(
    start: Callable[[DeltaLog], OptimisticTransaction],
) -> None:
    log = table()
    mine = start(log)
    delete(reading(log), {A: [1]})
    with pytest.raises((APPEND, DELETE_READ)):
        delete(mine, {A: [5]})


def test_a_file_that_was_not_read_at_all_is_shared_by_the_rows_that_are_told() -> None:
    log = table()
    mine = log.start_transaction()
    delete(reading(log), {A: [1]})
    delete(mine, {A: [5]})
    assert gone(log) == [1, 5]


def test_a_vector_that_nobody_was_told_of_is_not_rebased() -> None:
    log = table()
    mine = reading(log)
    delete(reading(log), {A: [1]})
    old = live_file(log, A)
    written = write_vectors(log.store, [DeletionVector([5])], new_uuid=random_uuid)
    actions = changed_vector(
        replace(old, deletion_vector=None), written.descriptors[0], deletion_timestamp=5
    )
    with pytest.raises(APPEND):
        mine.commit(actions, "DELETE")


def rewritten(path: str, *, data_change: bool = True) -> list[Action]:
    gone = add(path, stats=stats(0, 9)).remove(5, data_change=data_change)
    return [gone, add("part=1/z", stats=stats(0, 9), data_change=data_change)]


def test_a_file_that_i_rewrite_is_not_shared() -> None:
    log = table()
    mine = reading(log)
    delete(reading(log), {A: [1]})
    with pytest.raises(APPEND):
        mine.commit(rewritten(A), "DELETE")


@pytest.mark.parametrize("data_change", [True, False])
def test_a_file_that_the_winner_rewrites_is_not_shared(data_change: bool) -> None:
    log = table()
    mine = reading(log)
    log.start_transaction().commit(rewritten(A, data_change=data_change), "OPTIMIZE")
    with pytest.raises(APPEND):
        delete(mine, {A: [5]})


def test_a_file_that_the_winner_removes_is_not_shared() -> None:
    log = table()
    mine = reading(log)
    log.start_transaction().commit([add(A).remove(5)], "DELETE")
    with pytest.raises(DELETE_READ):
        delete(mine, {A: [5]})


def test_a_winner_that_brings_rows_back_is_in_the_way() -> None:
    log = table()
    delete(reading(log), {A: [1, 2]})
    mine = reading(log)
    old = live_file(log, A)
    fewer = inline_descriptor(DeletionVector([1]))
    log.start_transaction().commit(changed_vector(old, fewer, deletion_timestamp=5), "RESTORE")
    with pytest.raises(APPEND):
        delete(mine, {A: [5]})


def test_a_winner_that_takes_the_vector_away_is_in_the_way() -> None:
    log = table()
    delete(reading(log), {A: [1, 2]})
    mine = reading(log)
    old = live_file(log, A)
    bare = replace(old, deletion_vector=None, data_change=True)
    log.start_transaction().commit([old.remove(5), bare], "RESTORE")
    with pytest.raises(APPEND):
        delete(mine, {A: [5]})


def test_a_vector_that_cannot_be_read_is_in_the_way() -> None:
    log = table()
    mine = reading(log)
    delete(reading(log), {A: [1]})
    for path in vector_files(log.store):
        log.store.delete(path)
    with pytest.raises(APPEND):
        delete(mine, {A: [5]})


def test_a_winner_whose_vector_is_beyond_the_file_is_in_the_way() -> None:
    log = table()
    mine = reading(log)
    old = live_file(log, A)
    beyond = inline_descriptor(DeletionVector([10]))
    log.start_transaction().commit(changed_vector(old, beyond, deletion_timestamp=5), "DELETE")
    with pytest.raises(APPEND):
        delete(mine, {A: [5]})


def test_rows_that_were_told_and_rows_that_go_must_agree() -> None:
    log = table()
    mine = reading(log)
    actions = rows_out(mine, {A: [5]})
    mine.touch_rows({A: DeletionVector([6])})
    with pytest.raises(InvalidActionsError, match="takes out 1 rows, but 2 were touched"):
        mine.commit(actions, "DELETE")


def test_rows_are_told_by_any_spelling_of_a_path() -> None:
    path = "part=1/c%20%25"
    log = new_table("part", actions=[add(path, stats=stats(0, 9))], configuration=VECTORS)
    mine = reading(log)
    delete(reading(log), {path: [1]})
    delete(mine, {path: [5]})
    assert gone(log, path) == [1, 5]


# Files of which a command needs no row, or some that it leaves as they are.


def test_a_file_without_a_row_for_me_may_lose_rows() -> None:
    log = table()
    mine = reading(log)
    delete(reading(log), {B: [1]})
    assert delete(mine, {A: [5]}) == 3
    assert gone(log, B) == [1]


def test_a_file_without_a_row_for_me_may_go() -> None:
    log = table()
    mine = reading(log)
    log.start_transaction().commit([remove(B)], "DELETE")
    assert delete(mine, {A: [5]}) == 3


def test_a_file_without_a_row_for_me_may_not_come_back_as_another() -> None:
    log = table()
    mine = reading(log, "id < 100")
    gone_file = live_file(log, B).remove(5, data_change=False)
    moved = add("part=1/c", stats=stats(10, 19), data_change=False)
    log.start_transaction().commit([gone_file, moved], "OPTIMIZE")
    with pytest.raises(APPEND):
        delete(mine, {A: [5]})


def test_a_command_that_touched_nothing_does_not_mind_rows_that_go() -> None:
    log = table(WRITE_SERIALIZABLE)
    mine = reading(log)
    delete(reading(log), {A: [5]})
    assert mine.commit([], "DELETE").version == 3


def test_rows_that_a_merge_needs_must_stay() -> None:
    log = table()
    free, bound = reading(log), reading(log)
    for txn in (free, bound):
        txn.touch_rows({}, needed={A: DeletionVector([3])})
    delete(reading(log), {A: [4]})
    assert free.commit([add("part=1/c", stats=stats(50, 50))], "MERGE").version == 3
    delete(reading(log, "id < 10"), {A: [3]})
    with pytest.raises(APPEND):  # the rows that `free` added
        bound.commit([add("part=1/d")], "MERGE")


def test_a_row_that_a_merge_needs_is_gone() -> None:
    log = table()
    mine = reading(log)
    mine.touch_rows({}, needed={A: DeletionVector([3])})
    delete(reading(log), {A: [3]})
    with pytest.raises((APPEND, DELETE_READ)):
        mine.commit([add("part=1/c", stats=stats(50, 50))], "MERGE")


def test_rows_that_are_needed_and_changed_are_both_looked_at() -> None:
    log = table()
    first, second = reading(log), reading(log)
    for txn in (first, second):
        txn.touch_rows({}, needed={A: DeletionVector([3])})
    delete(reading(log), {A: [4]})
    delete(first, {A: [5]})
    delete(reading(log), {A: [3]})
    with pytest.raises(APPEND):
        delete(second, {A: [6]})
    assert gone(log) == [3, 4, 5]


# Updates: rows that go here come back elsewhere.


def update(txn: OptimisticTransaction, row: int, new: str) -> int:
    """Take row `row` of the first file out, and write it to a file with that id alone."""
    actions = [*rows_out(txn, {A: [row]}), add(new, stats=stats(row, row))]
    return txn.commit(actions, "UPDATE").version


def test_two_updates_of_other_rows_of_one_file_both_stand() -> None:
    log = table()
    mine, winner = reading(log, "id = 5"), reading(log, "id = 7")
    update(winner, 7, "part=1/seven")
    update(mine, 5, "part=1/five")
    assert gone(log) == [5, 7]
    assert live_paths(log) == [A, B, "part=1/five", "part=1/seven"]


def test_an_update_that_brings_a_row_i_look_for_is_in_the_way() -> None:
    log = table()
    mine, winner = reading(log, "id = 5"), reading(log, "id = 7")
    actions = [*rows_out(winner, {A: [7]}), add("part=1/new", stats=stats(5, 5))]
    winner.commit(actions, "UPDATE")
    with pytest.raises(APPEND):
        update(mine, 5, "part=1/five")


def test_change_files_stay_as_they_are() -> None:
    log = table({**VECTORS, "delta.enableChangeDataFeed": "true"})
    mine, winner = reading(log, "id = 5"), reading(log, "id = 7")
    update(winner, 7, "part=1/seven")
    update(mine, 5, "part=1/five")
    versions = dict(log.get_changes(2))
    assert [type(a).__name__ for a in versions[3]].count("AddFile") == 2
    info = versions[3][0]
    assert isinstance(info, CommitInfo)
    assert info.read_version == 1


def test_row_ids_of_files_that_had_none_are_those_of_the_winner() -> None:
    log = table()
    raised = log.start_transaction()
    raised.update_metadata(
        replace(
            raised.metadata,
            configuration={
                **raised.metadata.configuration,
                "delta.feature.rowTracking": "supported",
            },
        )
    )
    raised.commit([], "SET TBLPROPERTIES")
    assert live_file(log, A).base_row_id is None
    mine, winner = reading(log), reading(log)
    delete(winner, {A: [1]})
    base = live_file(log, A).base_row_id
    assert base is not None
    delete(mine, {A: [5], B: [5]})
    assert live_file(log, A).base_row_id == base
    other = live_file(log, B).base_row_id
    assert other is not None
    assert abs(other - base) >= 10
    assert gone(log) == [1, 5]


def test_blind_appends_do_not_matter_to_a_write_serializable_delete() -> None:
    log = table(WRITE_SERIALIZABLE)
    mine = reading(log)
    log.start_transaction().commit([add("part=1/c", stats=stats(0, 9))], "WRITE")
    delete(reading(log), {A: [1]})
    assert delete(mine, {A: [5]}) == 4
    assert gone(log) == [1, 5]


def test_a_large_winner_is_judged_as_a_small_one() -> None:
    log = table()
    mine = reading(log, "id = 5")
    winner = reading(log, "id = 7")
    many = [add(f"part=1/{n}", stats=stats(100, 200)) for n in range(4000)]
    winner.commit([*rows_out(winner, {A: [7]}), *many], "UPDATE")
    assert delete(mine, {A: [5]}) == 3
    assert gone(log) == [5, 7]


def test_a_rearrangement_is_not_shared_by_rows() -> None:
    log = table()
    mine = reading(log)
    delete(reading(log), {B: [1]})
    old = live_file(log, A)
    vector = with_vector(old, inline_descriptor(DeletionVector([5])))
    mine.touch_rows({A: DeletionVector([5])})
    actions = [old.remove(5, data_change=False), replace(vector, data_change=False)]
    with pytest.raises(DELETE_READ):
        mine.commit(actions, "REORG")


def test_many_writers_take_their_own_rows_out_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / TABLE
    rows, writers = 60, 6
    counted = f'{{"numRecords":{rows + 1}}}'
    log = new_table(
        actions=[add("f", stats=counted)],
        configuration=VECTORS,
        log=DeltaLog(LocalStore(path), hooks=NO_HOOKS),
    )

    def work(writer: int) -> None:
        own = DeltaLog(LocalStore(path), hooks=NO_HOOKS)
        for row in range(writer, rows, writers):
            delete(reading(own, f"id = {row}"), {"f": [row]})

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(work, range(writers)))
    left = deleted_rows(log.store, live_file(log, "f"))
    assert left == DeletionVector(range(rows))
    assert log.update().version == rows + 1
    # One file for each commit, and no other: what was written in vain was taken back.
    assert len(vector_files(log.store)) == rows
