"""Who may commit after whom: one row per case, as delta-spark's own suites have them.

In each case a transaction starts and reads, another commits first, and then the first one does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pyspark_delta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
    UnsupportedProtocolError,
)
from pyspark_delta.kernel.protocol.actions import (
    Action,
    DomainMetadata,
    Protocol,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from tests.support.transactions import add, live_paths, metadata, new_table, remove, vector

APPEND = ConcurrentAppendException
DELETE_READ = ConcurrentDeleteReadException
DELETE_DELETE = ConcurrentDeleteDeleteException
TRANSACTION = ConcurrentTransactionException
METADATA = MetadataChangedException
PROTOCOL = ProtocolChangedException

Read = Callable[[OptimisticTransaction], object]
SERIALIZABLE = {"delta.isolationLevel": "Serializable"}
WRITE_SERIALIZABLE = {"delta.isolationLevel": "WriteSerializable"}
FEATURES = {"delta.feature.domainMetadata": "supported"}
VECTORS = {"delta.enableDeletionVectors": "true"}


def where(*predicates: str) -> tuple[Read, ...]:
    """Reads of the files for each predicate."""

    def reader(text: str) -> Read:
        return lambda txn: txn.filter_files(parse_predicate(text))

    return tuple(reader(text) for text in predicates)


def everything(txn: OptimisticTransaction) -> None:
    txn.filter_files()


def whole_table(txn: OptimisticTransaction) -> None:
    txn.read_whole_table()


def app(name: str) -> Read:
    return lambda txn: txn.txn_version(name)


def files(*paths: str) -> Read:
    return lambda txn: txn.read_files(paths)


def rearranged(*actions: Action) -> tuple[Action, ...]:
    return tuple(_replace(action) for action in actions)


def _replace(action: Action) -> Action:
    line = action.json.replace('"dataChange":true', '"dataChange":false')
    changed = Action.from_json(line)
    assert changed is not None
    return changed


def domain(name: str, removed: bool = False) -> DomainMetadata:
    return DomainMetadata(domain=name, configuration="{}", removed=removed)


def with_vector(path: str, name: str) -> Action:
    stats = '{"numRecords":10,"tightBounds":false}'
    return add(path, stats=stats, deletion_vector=vector(name))


def ids(low: object, high: object, **more: object) -> str:
    """Statistics of a file with ids from `low` to `high`."""
    bounds = {"minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    return json.dumps({"numRecords": 10, **bounds, **more})


def values(low: str, high: str) -> str:
    """Statistics of a file with texts from `low` to `high`."""
    return json.dumps({"numRecords": 10, "minValues": {"value": low}, "maxValues": {"value": high}})


@dataclass(frozen=True, kw_only=True)
class Case:
    """`raises` is None when both may commit.  Without `winner_reads` the winner read nothing."""

    name: str
    raises: type[Exception] | None
    partitions: tuple[str, ...] = ("part",)
    setup: tuple[Action, ...] = ()
    configuration: dict[str, str] = field(default_factory=lambda: SERIALIZABLE)
    reads: tuple[Read, ...] = ()
    winner_reads: tuple[Read, ...] = (everything,)
    winner: tuple[Action, ...] = ()
    winner_operation: str = "WRITE"
    mine: tuple[Action, ...] = ()
    operation: str = "WRITE"


TWO = ("a", "b")  # partitioned by two columns

CASES = (
    # Appends.
    Case(
        name="append / append",
        raises=None,
        winner_reads=(),
        winner=(add("part=1/a"),),
        mine=(add("part=1/b"),),
    ),
    Case(
        name="append / append, unpartitioned",
        raises=None,
        partitions=(),
        winner_reads=(),
        winner=(add("a"),),
        mine=(add("b"),),
    ),
    Case(
        name="blind append against any data change",
        raises=None,
        setup=(add("part=1/a"),),
        winner=(remove("part=1/a"), add("part=1/b")),
        mine=(add("part=1/c"),),
    ),
    Case(
        name="blind append against a rearrangement",
        raises=None,
        setup=(add("part=1/a"),),
        winner=rearranged(remove("part=1/a"), add("part=1/b")),
        winner_operation="OPTIMIZE",
        mine=(add("part=1/c"),),
    ),
    Case(
        name="read and append against append",
        raises=APPEND,
        partitions=(),
        reads=(everything,),
        winner_reads=(),
        winner=(add("a"),),
        mine=(add("b"),),
    ),
    Case(
        name="read and append against append, write serializable",
        raises=None,
        partitions=(),
        configuration=WRITE_SERIALIZABLE,
        reads=(everything,),
        winner_reads=(),
        winner=(add("a"),),
        mine=(add("b"),),
    ),
    Case(
        name="read and append against an append that read, write serializable",
        raises=APPEND,
        partitions=(),
        configuration=WRITE_SERIALIZABLE,
        reads=(everything,),
        winner=(add("a"),),
        mine=(add("b"),),
    ),
    Case(
        name="read and metadata against blind append, write serializable",
        raises=APPEND,
        configuration=WRITE_SERIALIZABLE,
        reads=(everything,),
        winner_reads=(),
        winner=(add("part=1/a"),),
        mine=(metadata("part", configuration={"user.key": "1", **WRITE_SERIALIZABLE}),),
    ),
    Case(
        name="overwrite against append",
        raises=APPEND,
        setup=(add("part=1/a"),),
        reads=(everything,),
        winner_reads=(),
        winner=(add("part=1/b"),),
        mine=(remove("part=1/a"), add("part=1/c")),
    ),
    Case(
        name="delete of a file that was not looked for, unpartitioned, against append",
        raises=APPEND,
        partitions=(),
        setup=(add("a"),),
        winner_reads=(),
        winner=(add("b"),),
        mine=(remove("a"),),
        operation="DELETE",
    ),
    Case(
        name="delete of a file that was not looked for, partitioned, against append",
        raises=None,
        setup=(add("part=1/a"),),
        winner_reads=(),
        winner=(add("part=1/b"),),
        mine=(remove("part=1/a"),),
        operation="DELETE",
    ),
    Case(
        name="read, append and delete against a commit that changes nothing",
        raises=None,
        setup=(add("part=1/a"),),
        reads=(everything,),
        winner=(),
        mine=(remove("part=1/a"), add("part=1/b")),
    ),
    # Partitions.
    Case(
        name="disjoint delete / read",
        raises=None,
        setup=(add("part=2/a"),),
        reads=where("part = 1"),
        winner=(remove("part=2/a"),),
    ),
    Case(
        name="disjoint add / read",
        raises=None,
        reads=where("part = 1"),
        winner=(add("part=2/a"),),
        mine=(add("part=1/b"),),
    ),
    Case(
        name="add / read + write",
        raises=APPEND,
        reads=where("part = 1"),
        winner=(add("part=1/a"),),
        mine=(add("part=1/b"),),
    ),
    Case(
        name="add / read + no write",
        raises=None,
        reads=where("part = 1"),
        winner=(add("part=1/a"),),
    ),
    Case(
        name="add in part=1 / read from part=1,2 and write to part=2",
        raises=APPEND,
        reads=where("part = 1", "part = 2"),
        winner=(add("part=1/a"),),
        mine=(add("part=2/b"),),
    ),
    Case(
        name="commit on disjoint partitions",
        raises=None,
        setup=(add("part=1/a"), add("part=3/e")),
        reads=where("part = 3"),
        winner=(add("part=1/b"),),
        mine=(add("part=2/c"), remove("part=3/e")),
    ),
    Case(
        name="commit on disjoint partitions, the winner reading all",
        raises=None,
        setup=(add("part=1/a"), add("part=2/d")),
        reads=where("part IN (1)"),
        winner=(add("part=2/c"), remove("part=2/d")),
        mine=(add("part=3/e"), add("part=3/f")),
    ),
    Case(
        name="read partition appended to",
        raises=APPEND,
        setup=(add("part=1/a"), add("part=2/d"), add("part=3/e")),
        reads=where("part = 1"),
        winner=(add("part=1/b"),),
        mine=(add("part=2/c"), add("part=3/g")),
    ),
    Case(
        name="full scan beside a partition read",
        raises=APPEND,
        setup=(add("part=1/a"), add("part=2/d")),
        reads=(everything, *where("part = 1")),
        winner=(add("part=2/c"), remove("part=2/d")),
        mine=(add("part=3/e"),),
    ),
    Case(
        name="a predicate on data as well, against a file without statistics",
        raises=APPEND,
        setup=(add("part=1/a"), add("part=3/e")),
        reads=where("part = 1 OR id > 2019"),
        winner=(add("part=2/c"),),
        mine=(remove("part=1/a"),),
    ),
    Case(
        name="a predicate on data beside one on partitions, which decide",
        raises=None,
        setup=(add("part=1/a"),),
        reads=where("part = 1 AND id > 2019"),
        winner=(add("part=2/c"),),
        mine=(remove("part=1/a"),),
    ),
    Case(
        name="two scans, the second of them in the way",
        raises=APPEND,
        setup=(add("part=1/a"), add("part=3/e")),
        reads=where("part = 1", "part > 1 AND part < 3"),
        winner=(add("part=2/c"),),
        mine=(remove("part=1/a"),),
    ),
    Case(
        name="a null partition is not equal to anything",
        raises=None,
        reads=where("part = 1"),
        winner=(add("part=1/a", {"part": None}),),
        mine=(add("part=1/b"),),
    ),
    Case(
        name="a null partition is null",
        raises=APPEND,
        reads=where("part IS NULL"),
        winner=(add("part=1/a", {"part": None}),),
        mine=(add("part=1/b"),),
    ),
    Case(
        name="nested partitions, read disjoint from write",
        raises=None,
        partitions=TWO,
        setup=(add("a=1/b=1/a"),),
        reads=where("a = 1 AND b = 1"),
        winner=(add("a=1/b=2/b"),),
        mine=(add("a=2/b=1/c"),),
    ),
    Case(
        name="nested partitions, both writing to the same one",
        raises=None,
        partitions=TWO,
        setup=(add("a=1/b=1/a"),),
        reads=where("a = 1 AND b = 1"),
        winner=(add("a=1/b=2/b"),),
        mine=(add("a=1/b=2/x"),),
    ),
    Case(
        name="read of the first level disjoint from a write of the second",
        raises=None,
        partitions=TWO,
        setup=(add("a=1/b=1/a"), add("a=1/b=2/b")),
        reads=where("a = 1"),
        winner=(add("a=2/b=1/c"),),
        mine=(add("a=3/b=1/d"),),
    ),
    Case(
        name="full read against a write of the second level",
        raises=APPEND,
        partitions=TWO,
        setup=(add("a=1/b=1/a"),),
        reads=(everything,),
        winner=(add("a=1/b=2/b"),),
        mine=(add("a=2/b=1/c"),),
    ),
    Case(
        name="range read against a write of the second level",
        raises=APPEND,
        partitions=TWO,
        setup=(add("a=1/b=1/a"),),
        reads=where("a >= 1 OR b > 1"),
        winner=(add("a=1/b=2/b"),),
        mine=(add("a=3/b=1/d"),),
    ),
    # Statistics.
    *(
        Case(
            name=f"{text} against {name}",
            raises=raises,
            partitions=(),
            setup=(add("a"),),
            reads=where(text),
            winner=(add("b", stats=statistics),),
            mine=(remove("a"),),
            operation="DELETE",
        )
        for text, name, statistics, raises in (
            ("id = 5", "ids elsewhere", ids(7, 7), None),
            ("id = 5", "ids around it", ids(3, 9), APPEND),
            ("id = 5", "the id", ids(5, 5), APPEND),
            ("id = 5", "ids elsewhere, loosely", ids(7, 9, tightBounds=False), None),
            ("id = 5", "no statistics", None, APPEND),
            ("id = 5", "a count alone", '{"numRecords":10}', APPEND),
            ("id = 5", "one bound above", '{"numRecords":1,"minValues":{"id":7}}', None),
            ("id = 5", "one bound below", '{"numRecords":1,"minValues":{"id":3}}', APPEND),
            ("id = 5", "statistics that are not any", '{"numRecords":10,"minV', APPEND),
            ("id = 5", "bounds of another type", ids("7", "9"), APPEND),
            ("id = 5", "nulls alone", '{"numRecords":10,"nullCount":{"id":10}}', None),
            ("id = 5", "nulls beside others", '{"numRecords":10,"nullCount":{"id":9}}', APPEND),
            ("NOT (id = 5)", "the id alone", ids(5, 5), None),
            ("NOT (id = 5)", "nulls alone", '{"numRecords":10,"nullCount":{"id":10}}', None),
            ("id IS NULL", "no nulls", ids(5, 5), None),
            ("id IS NULL", "some nulls", '{"numRecords":10,"nullCount":{"id":1}}', APPEND),
            ("id <=> NULL", "no nulls", ids(5, 5), None),
            ("id IN (1, 5)", "ids between", ids(2, 4), None),
            ("id = 5 OR value = 'x'", "ids elsewhere", ids(7, 7), APPEND),
            ("id = 5 OR id = 6", "ids elsewhere", ids(7, 7), None),
            ("id = 5 AND value = 'x'", "ids elsewhere", ids(7, 7), None),
            ("value = 'abz'", "a maximum that was cut", values("aa", "ab\x7f"), APPEND),
            ("value = 'abz'", "a maximum below", values("aa", "abc"), None),
        )
    ),
    Case(
        name="partitions or ids, and neither",
        raises=None,
        setup=(add("part=1/a"),),
        reads=where("part = 1 OR id = 5"),
        winner=(add("part=2/b", stats=ids(7, 7)),),
        mine=(remove("part=1/a"),),
    ),
    Case(
        name="partitions or ids, and one of them",
        raises=APPEND,
        setup=(add("part=1/a"),),
        reads=where("part = 1 OR id = 5"),
        winner=(add("part=2/b", stats=ids(5, 7)),),
        mine=(remove("part=1/a"),),
    ),
    Case(
        name="ids elsewhere in the same partition",
        raises=None,
        setup=(add("part=1/a"),),
        reads=where("part = 1 AND id = 5"),
        winner=(add("part=1/b", stats=ids(7, 7)),),
        mine=(remove("part=1/a"),),
    ),
    Case(
        name="one of many files",
        raises=APPEND,
        setup=(add("part=1/a"),),
        reads=where("part = 1 AND id = 5"),
        winner=tuple(add(f"part=1/{n}", stats=ids(n, n)) for n in range(100)),
        mine=(remove("part=1/a"),),
    ),
    Case(
        name="none of many files",
        raises=None,
        setup=(add("part=1/a"),),
        reads=where("part = 1 AND id = 500"),
        winner=tuple(add(f"part={n % 3}/{n}", stats=ids(n, n)) for n in range(100)),
        mine=(remove("part=1/a"),),
    ),
    Case(
        name="one of two reads is of everything",
        raises=APPEND,
        partitions=(),
        setup=(add("a"),),
        reads=(*where("id = 5"), everything),
        winner=(add("b", stats=ids(7, 7)),),
        mine=(remove("a"),),
    ),
    # replaceWhere.
    Case(
        name="replaceWhere on the same empty partitions",
        raises=APPEND,
        setup=(add("part=1/a"),),
        reads=where("part >= 2"),
        winner_reads=where("part >= 2"),
        winner=(add("part=3/e"),),
        mine=(add("part=2/c"),),
    ),
    Case(
        name="replaceWhere on disjoint empty partitions",
        raises=None,
        setup=(add("part=1/a"),),
        reads=where("part > 3"),
        winner_reads=where("part > 1 AND part <= 3"),
        winner=(add("part=2/c"),),
        mine=(add("part=4/g"),),
    ),
    Case(
        name="replaceWhere with overlapping predicates",
        raises=APPEND,
        setup=(add("part=1/a"), add("part=4/g")),
        reads=where("part >= 2"),
        winner_reads=where("part <= 3"),
        winner=(remove("part=1/a"), add("part=2/c")),
        mine=(remove("part=4/g"), add("part=3/e")),
    ),
    Case(
        name="two replaceWhere on one partition",
        raises=APPEND,
        setup=(add("part=1/a"),),
        reads=where("part = 1"),
        winner_reads=where("part = 1"),
        winner=(remove("part=1/a"), add("part=1/b")),
        mine=(remove("part=1/a"), add("part=1/c")),
    ),
    Case(
        name="two replaceWhere that change partitions",
        raises=DELETE_READ,
        setup=(add("part=1/a"), add("part=2/c"), add("part=3/e")),
        reads=where("part = 3 OR part = 2"),
        winner_reads=where("part = 3 OR part = 1"),
        winner=(remove("part=1/a"), remove("part=3/e"), add("part=1/b")),
        mine=(remove("part=2/c"), remove("part=3/e"), add("part=2/d")),
    ),
    # Removes.
    Case(
        name="delete / delete",
        raises=DELETE_DELETE,
        setup=(add("part=1/a"),),
        winner=(remove("part=1/a"),),
        mine=(remove("part=1/a"),),
    ),
    Case(
        name="delete / delete, disjoint read",
        raises=DELETE_DELETE,
        partitions=TWO,
        setup=(add("a=1/b=2/b"),),
        reads=where("a = 2"),
        winner=(remove("a=1/b=2/b"),),
        mine=(remove("a=1/b=2/b"),),
    ),
    Case(
        name="delete / delete of one file spelled differently",
        raises=DELETE_DELETE,
        setup=(add("part=1/a%20b"),),
        winner=(remove("part=1/a%20b"),),
        mine=(remove("part=1/a b"),),
    ),
    Case(
        name="delete / read",
        raises=DELETE_READ,
        setup=(add("part=1/a"),),
        reads=where("part = 1"),
        winner=(remove("part=1/a"),),
    ),
    Case(
        name="delete / read, write serializable",
        raises=DELETE_READ,
        setup=(add("part=1/a"),),
        configuration=WRITE_SERIALIZABLE,
        reads=where("part = 1"),
        winner=(remove("part=1/a"),),
        mine=(add("part=1/b"),),
    ),
    Case(
        name="read of the first level against a delete of the second",
        raises=DELETE_READ,
        partitions=TWO,
        setup=(add("a=1/b=1/a"), add("a=1/b=2/b")),
        reads=where("a = 1"),
        winner=(remove("a=1/b=1/a"),),
        mine=(add("a=3/b=1/d"),),
    ),
    Case(
        name="full read against a delete in any partition",
        raises=DELETE_READ,
        setup=(add("part=1/a"), add("part=2/c")),
        reads=(everything,),
        winner=(remove("part=1/a"),),
        mine=(remove("part=2/c"),),
    ),
    Case(
        name="full read against an add in any partition",
        raises=APPEND,
        setup=(add("part=1/a"), add("part=2/c")),
        reads=(everything,),
        winner=(remove("part=2/c"), add("part=1/b")),
        mine=(add("part=2/d"),),
    ),
    Case(
        name="a file that was read by name is removed",
        raises=DELETE_READ,
        setup=(add("part=1/a"), add("part=1/b")),
        reads=(files("part=1/a"),),
        winner=(remove("part=1/a"),),
        mine=(add("part=1/c"),),
    ),
    Case(
        name="another file than the one that was read by name is removed",
        raises=None,
        setup=(add("part=1/a"), add("part=1/b")),
        reads=(files("part=1/a"),),
        winner=(remove("part=1/b"),),
        mine=(add("part=1/c"),),
    ),
    Case(
        name="a file that was read is only rearranged",
        raises=DELETE_READ,
        setup=(add("part=1/a"),),
        reads=(files("part=1/a"),),
        winner=rearranged(remove("part=1/a")),
        winner_operation="OPTIMIZE",
        mine=(add("part=1/c"),),
    ),
    Case(
        name="taint whole table",
        raises=APPEND,
        setup=(add("part=2/a"),),
        reads=(*where("part = 1"), whole_table),
        winner=(add("part=3/b"),),
        mine=(add("part=4/c"),),
    ),
    Case(
        name="taint whole table + concurrent remove",
        raises=DELETE_READ,
        partitions=(),
        setup=(add("a"),),
        reads=(whole_table,),
        winner=(remove("a"),),
        mine=(add("b"),),
    ),
    Case(
        name="two vectors for one file",
        raises=DELETE_DELETE,
        setup=(add("part=1/a"),),
        configuration={**SERIALIZABLE, **VECTORS},
        reads=where("part = 2"),
        winner=(remove("part=1/a"), with_vector("part=1/a", "v1")),
        winner_operation="DELETE",
        mine=(remove("part=1/a"), with_vector("part=1/a", "v2")),
        operation="DELETE",
    ),
    # Rearrangements.
    Case(
        name="rearrangement against new files",
        raises=None,
        setup=(add("part=1/a"), add("part=1/b")),
        reads=(everything,),
        winner=(add("part=3/e"),),
        mine=rearranged(remove("part=1/a"), remove("part=1/b"), add("part=1/c")),
        operation="OPTIMIZE",
    ),
    Case(
        name="rearrangement against new files, write serializable",
        raises=None,
        setup=(add("part=1/a"), add("part=1/b")),
        configuration=WRITE_SERIALIZABLE,
        reads=(everything,),
        winner=(add("part=3/e"),),
        mine=rearranged(remove("part=1/a"), remove("part=1/b"), add("part=1/c")),
        operation="OPTIMIZE",
    ),
    Case(
        name="rearrangement against a delete of the same file",
        raises=DELETE_READ,
        setup=(add("part=1/a"), add("part=1/b")),
        reads=(everything,),
        winner=(remove("part=1/a"),),
        mine=rearranged(remove("part=1/a"), remove("part=1/b"), add("part=1/c")),
        operation="OPTIMIZE",
    ),
    Case(
        name="two rearrangements of one file",
        raises=DELETE_READ,
        setup=(add("part=1/a"), add("part=1/b")),
        reads=where("part = 1"),
        winner=rearranged(remove("part=1/a"), remove("part=1/b"), add("part=1/d")),
        winner_operation="OPTIMIZE",
        mine=rearranged(remove("part=1/a"), remove("part=1/b"), add("part=1/c")),
        operation="OPTIMIZE",
    ),
    Case(
        name="delete against a rearrangement of the partition",
        raises=APPEND,
        setup=(add("part=1/a"), add("part=1/b")),
        reads=where("part = 1"),
        winner=rearranged(remove("part=1/a"), remove("part=1/b"), add("part=1/d")),
        winner_operation="OPTIMIZE",
        mine=(remove("part=1/a"), add("part=1/c")),
        operation="DELETE",
    ),
    # Applications.
    Case(
        name="disjoint txns",
        raises=None,
        reads=(app("t1"),),
        winner=(SetTransaction(app_id="t2", version=0, last_updated=1234),),
    ),
    Case(
        name="conflicting txns",
        raises=TRANSACTION,
        reads=(app("t1"),),
        winner=(SetTransaction(app_id="t1", version=0, last_updated=1234),),
    ),
    Case(
        name="conflicting txns, write serializable",
        raises=TRANSACTION,
        configuration=WRITE_SERIALIZABLE,
        reads=(app("t1"),),
        winner=(SetTransaction(app_id="t1", version=0), add("part=1/a")),
        mine=(SetTransaction(app_id="t1", version=0), add("part=1/b")),
    ),
    Case(
        name="the same application without a look at its version",
        raises=None,
        winner=(SetTransaction(app_id="t1", version=0),),
        mine=(SetTransaction(app_id="t1", version=1), add("part=1/b")),
    ),
    # Metadata and protocol.
    Case(
        name="schema change",
        raises=METADATA,
        winner=(metadata("part", configuration={"user.key": "1", **SERIALIZABLE}),),
    ),
    Case(
        name="append against metadata change",
        raises=METADATA,
        winner=(metadata("part", description="new", configuration=SERIALIZABLE),),
        mine=(add("part=1/a"),),
    ),
    Case(
        name="rearrangement against metadata change",
        raises=METADATA,
        setup=(add("part=1/a"),),
        winner=(metadata("part", description="new", configuration=SERIALIZABLE),),
        mine=rearranged(remove("part=1/a"), add("part=1/b")),
        operation="OPTIMIZE",
    ),
    Case(
        name="metadata that says the same",
        raises=None,
        winner=(metadata("part", configuration=SERIALIZABLE),),
        mine=(add("part=1/a"),),
    ),
    Case(
        name="a property that is gone",
        raises=METADATA,
        winner=(metadata("part"),),
        mine=(add("part=1/a"),),
    ),
    Case(
        name="metadata / metadata",
        raises=METADATA,
        winner=(metadata("part", configuration=SERIALIZABLE),),
        mine=(metadata("part", configuration=SERIALIZABLE),),
    ),
    Case(
        name="metadata against append",
        raises=None,
        winner_reads=(),
        winner=(add("part=1/a"),),
        mine=(metadata("part", configuration={"user.key": "1", **SERIALIZABLE}),),
    ),
    Case(
        name="upgrade / upgrade",
        raises=PROTOCOL,
        winner=(upgraded(Protocol(), ["domainMetadata"]),),
        mine=(upgraded(Protocol(), ["domainMetadata"]),),
    ),
    Case(
        name="append against upgrade",
        raises=None,
        winner=(upgraded(Protocol(), ["deletionVectors"]),),
        mine=(add("part=1/a"),),
    ),
    Case(
        name="upgrade against append",
        raises=None,
        winner_reads=(),
        winner=(add("part=1/a"),),
        mine=(upgraded(Protocol(), ["deletionVectors"]),),
    ),
    # Domains.
    Case(
        name="domain / same domain",
        raises=TRANSACTION,
        configuration=FEATURES,
        winner=(domain("user.d"),),
        mine=(domain("user.d"),),
    ),
    Case(
        name="domain / its removal",
        raises=TRANSACTION,
        configuration=FEATURES,
        winner=(domain("user.d", removed=True),),
        mine=(domain("user.d"),),
    ),
    Case(
        name="domain / another domain",
        raises=None,
        configuration=FEATURES,
        winner=(domain("user.d"),),
        mine=(domain("user.e"),),
    ),
    Case(
        name="append / domain",
        raises=None,
        configuration=FEATURES,
        winner=(domain("user.d"),),
        mine=(add("part=1/a"),),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_commits_are_put_in_order_or_one_is_refused(case: Case) -> None:
    log = new_table(*case.partitions, actions=case.setup, configuration=case.configuration)
    mine, winner = log.start_transaction(), log.start_transaction()
    for read in case.reads:
        read(mine)
    for read in case.winner_reads:
        read(winner)
    won = winner.commit(case.winner, case.winner_operation)
    if case.raises is None:
        assert mine.commit(case.mine, case.operation).version == won.version + 1
        return
    before = live_paths(log)
    with pytest.raises(case.raises) as caught:
        mine.commit(case.mine, case.operation)
    assert isinstance(caught.value, DeltaConcurrentModificationException)
    assert f'"version":{won.version}' in caught.value.parameters["conflictingCommit"]
    assert live_paths(log) == before
    assert log.update().version == won.version


def test_the_matrix_is_as_large_as_it_should_be() -> None:
    assert len(CASES) >= 48
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_winner_is_checked_and_not_only_the_last() -> None:
    log = new_table("part", actions=[add("part=1/a")])
    mine = log.start_transaction()
    mine.filter_files(parse_predicate("part = 1"))
    log.start_transaction().commit([add("part=2/b")], "WRITE")
    log.start_transaction().commit([remove("part=1/a")], "DELETE")
    log.start_transaction().commit([add("part=3/c")], "WRITE")
    with pytest.raises(ConcurrentDeleteReadException) as caught:
        mine.commit([add("part=1/d")], "WRITE")
    assert caught.value.parameters["version"] == "3"


def test_a_commit_moves_behind_as_many_winners_as_there_are() -> None:
    log = new_table("part")
    mine = log.start_transaction()
    for number in range(20):
        log.start_transaction().commit([add(f"part=1/{number}")], "WRITE")
    assert mine.commit([add("part=1/mine")], "WRITE").version == 21
    assert len(live_paths(log)) == 21


def test_a_conflict_tells_the_partition_and_the_winner() -> None:
    log = new_table("part")
    mine = log.start_transaction()
    mine.filter_files(parse_predicate("part = 1"))
    log.start_transaction().commit([add("part=1/a")], "TRUNCATE")
    with pytest.raises(ConcurrentAppendException) as caught:
        mine.commit([add("part=1/b")], "WRITE")
    error = caught.value
    assert error.condition == "DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT"
    assert error.parameters["partitionValues"] == "[part=1]"
    assert error.parameters["operation"] == "TRUNCATE"
    assert error.parameters["version"] == "1"
    assert '"operation":"TRUNCATE"' in error.parameters["conflictingCommit"]


def test_a_conflict_on_a_table_without_partitions_has_no_hint() -> None:
    log = new_table(actions=[add("a")])
    mine = log.start_transaction()
    mine.filter_files()
    log.start_transaction().commit([remove("a")], "DELETE")
    with pytest.raises(ConcurrentDeleteReadException) as caught:
        mine.commit([add("b")], "WRITE")
    assert caught.value.condition == "DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT"


def test_two_writers_who_create_one_table_do_not_both_succeed() -> None:
    log = new_table()
    other = type(log)(log.store, now_ms=log.now_ms)
    late = OptimisticTransaction(other, None)
    late.update_metadata(metadata())
    with pytest.raises(ProtocolChangedException):
        late.commit([], "CREATE TABLE")


def test_a_protocol_that_we_cannot_write_stops_a_commit_that_was_under_way() -> None:
    log = new_table()
    mine = log.start_transaction()
    line = (
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,'
        '"readerFeatures":["fromTheFuture"],"writerFeatures":["fromTheFuture"]}}\n'
    )
    log.store.create("_delta_log/00000000000000000001.json", line.encode())
    with pytest.raises(UnsupportedProtocolError, match="fromTheFuture"):
        mine.commit([add("a")], "WRITE")


def test_a_commit_without_provenance_counts_as_one_that_read() -> None:
    log = new_table(configuration=WRITE_SERIALIZABLE)
    mine = log.start_transaction()
    mine.filter_files()
    line = add("a").json + "\n"
    log.store.create("_delta_log/00000000000000000001.json", line.encode())
    with pytest.raises(ConcurrentAppendException):
        mine.commit([add("b")], "WRITE")
