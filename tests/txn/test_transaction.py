"""What a transaction reads, and what of that its commit depends on."""

from __future__ import annotations

import pytest

from pyspark_delta.errors import ConcurrentAppendException, ConcurrentDeleteReadException
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.column_mapping import PHYSICAL_NAME_KEY
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, TIMESTAMP, StructField, StructType
from pyspark_delta.kernel.scan.plan import plan_scan
from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.scan.predicates.tree import TRUE, Unknown, conjunction
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.transactions import add, memory_log, metadata, new_table, remove


def bounded(path: str, low: int, high: int) -> AddFile:
    stats = (
        f'{{"numRecords":10,"minValues":{{"id":{low}}},"maxValues":{{"id":{high}}},'
        '"nullCount":{"id":0}}'
    )
    return add(path, stats=stats)


def test_files_are_chosen_by_partition_and_by_statistics() -> None:
    files = [bounded("part=1/a", 0, 9), bounded("part=1/b", 10, 19), bounded("part=2/c", 0, 9)]
    transaction = new_table("part", actions=files).start_transaction()

    def chosen(text: str) -> list[str]:
        table = transaction.filter_files(parse_predicate(text))
        return sorted(table.column("path").to_pylist())

    assert chosen("part = 1") == ["part=1/a", "part=1/b"]
    assert chosen("id > 12") == ["part=1/b"]
    assert chosen("part = 2 AND id < 5") == ["part=2/c"]
    assert chosen("part = 3") == []
    assert transaction.filter_files().num_rows == 3


def test_a_read_keeps_its_whole_predicate() -> None:
    transaction = new_table("part", actions=[add("part=1/a")]).start_transaction()
    transaction.filter_files(parse_predicate("part = 1 AND id > 5"))
    transaction.filter_files(parse_predicate("part = 1 OR id > 5"))
    transaction.filter_files(conjunction([Unknown("rand() > 0.5"), parse_predicate("part = 2")]))
    transaction.filter_files()
    first, second, third, fourth = transaction.reads.predicates
    assert first.to_sql() == "part = 1 AND id > 5"
    assert second.to_sql() == "part = 1 OR id > 5"
    assert third.to_sql() == "(rand() > 0.5) AND part = 2"
    assert fourth == TRUE


def test_files_that_statistics_ruled_out_do_not_conflict_and_new_ones_do() -> None:
    files = [bounded("part=1/a", 0, 9), bounded("part=1/b", 10, 19)]
    log = new_table("part", actions=files)
    by_rule_out, by_append = log.start_transaction(), log.start_transaction()
    for transaction in (by_rule_out, by_append):
        transaction.filter_files(parse_predicate("part = 1 AND id < 5"))
    log.start_transaction().commit([remove("part=1/b")], "DELETE")
    assert by_rule_out.commit([add("part=1/c")], "WRITE").version == 3
    # Statistics of a file that somebody else added are not looked at.
    with pytest.raises(ConcurrentAppendException):
        by_append.commit([add("part=1/d")], "WRITE")


def test_a_read_that_somebody_else_made_can_be_recorded() -> None:
    log = new_table("part", actions=[add("part=1/a"), add("part=2/b")])
    transaction = log.start_transaction()
    plan = plan_scan(log.snapshot, None, "part = 1")
    transaction.record_read(plan.filter, plan.files)
    log.start_transaction().commit([remove("part=2/b")], "DELETE")
    log.start_transaction().commit([remove("part=1/a")], "DELETE")
    with pytest.raises(ConcurrentDeleteReadException) as caught:
        transaction.commit([add("part=1/c")], "WRITE")
    assert caught.value.parameters["version"] == "3"
    assert caught.value.parameters["partitionValues"] == "[part=1]"


def test_partition_predicates_are_in_logical_names_under_column_mapping() -> None:
    log = new_table("part", configuration={"delta.columnMapping.mode": "name"})
    physical = str(log.snapshot.schema["part"].metadata[PHYSICAL_NAME_KEY])
    transaction = log.start_transaction()
    transaction.filter_files(parse_predicate("part = 1"))
    log.start_transaction().commit([add("x/a", {physical: "2"})], "WRITE")
    log.start_transaction().commit([add("x/b", {physical: "1"})], "WRITE")
    with pytest.raises(ConcurrentAppendException) as caught:
        transaction.commit([add("x/c", {physical: "3"})], "WRITE")
    assert caught.value.parameters["version"] == "2"
    assert caught.value.parameters["partitionValues"] == "[part=1]"


def test_a_partition_value_that_cannot_be_read_counts_as_a_match() -> None:
    log = new_table("part")
    transaction = log.start_transaction()
    transaction.filter_files(parse_predicate("part = 1"))
    line = add("x/a", {"part": "not a number"}).json + "\n"
    log.store.create("_delta_log/00000000000000000001.json", line.encode())
    with pytest.raises(ConcurrentAppendException):
        transaction.commit([add("part=1/c")], "WRITE")


def test_many_added_files_are_judged_as_few_are() -> None:
    log = new_table("part")
    mine, rival = log.start_transaction(), log.start_transaction()
    mine.filter_files(parse_predicate("part = 1"))
    rival.filter_files(parse_predicate("part = 9"))
    others = [add(f"part={2 + n % 5}/{n}") for n in range(200)]
    log.start_transaction().commit(others, "WRITE")
    assert mine.commit([add("part=1/mine")], "WRITE").version == 2
    log.start_transaction().commit([*(add(f"part=8/{n}") for n in range(99)), add("part=9/x")], "W")
    with pytest.raises(ConcurrentAppendException) as caught:
        rival.commit([add("part=9/rival")], "WRITE")
    assert caught.value.parameters["partitionValues"] == "[part=9]"


TOKYO = "Asia/Tokyo"
NEW_YEAR = parse_predicate("at = TIMESTAMP'2024-01-01 00:00:00'", time_zone=TOKYO)


def in_new_year(path: str, **changes: str) -> AddFile:
    """A file of a partition whose time does not say its zone."""
    return add(path, {"at": "2024-01-01 00:00:00"}, **changes)


def table_by_time(*files: AddFile) -> DeltaLog:
    schema = StructType((StructField("at", TIMESTAMP), StructField("id", LONG)))
    log = memory_log()
    transaction = log.start_transaction()
    transaction.update_metadata(metadata("at", schema_string=format_schema(schema)))
    transaction.commit(files, "CREATE TABLE")
    return log


def test_a_time_without_a_zone_is_in_the_one_that_the_transaction_was_given() -> None:
    log = table_by_time(in_new_year("a"), add("b", {"at": "2024-01-01T00:00:00.000000Z"}))

    def chosen(time_zone: str) -> list[str]:
        found: list[str] = (
            log.start_transaction(time_zone=time_zone)
            .filter_files(NEW_YEAR)
            .column("path")
            .to_pylist()
        )
        return found

    assert chosen(TOKYO) == ["a"]
    assert chosen("UTC") == []
    assert log.start_transaction().time_zone == "UTC"
    # A day of that zone, where statistics are asked as well.
    reader = log.transaction_on(log.snapshot, time_zone=TOKYO)
    day = parse_predicate("at < TIMESTAMP'2024-01-01 08:59:59' AND id > 0", time_zone=TOKYO)
    assert reader.filter_files(day).column("path").to_pylist() == ["a"]


@pytest.mark.parametrize("count", [1, 99], ids=["few files", "many files"])
@pytest.mark.parametrize("asks_rows", [False, True], ids=["partitions", "statistics"])
def test_files_that_others_add_are_judged_in_the_zone_of_the_reader(
    count: int, asks_rows: bool
) -> None:
    log = table_by_time()
    readers = [log.start_transaction(time_zone=zone) for zone in ("UTC", TOKYO)]
    text = "at = TIMESTAMP'2024-01-01 00:00:00'"
    if asks_rows:
        text = f"({text} OR id IS NULL) AND ({text} OR id > 100)"
    stats = '{"numRecords":1,"minValues":{"id":7},"maxValues":{"id":7},"nullCount":{"id":0}}'
    for reader in readers:
        reader.filter_files(parse_predicate(text, time_zone=TOKYO))
    others = [in_new_year(f"{number}", stats=stats) for number in range(count)]
    log.start_transaction().commit(others, "WRITE")
    in_utc, in_tokyo = readers
    assert in_utc.commit([in_new_year("mine")], "WRITE").version == 2
    with pytest.raises(ConcurrentAppendException):
        in_tokyo.commit([in_new_year("too late")], "WRITE")


def test_a_winner_too_large_to_hold_as_objects_is_judged_as_columns() -> None:
    log = new_table("part", actions=[add("part=1/a")])
    transactions = [log.start_transaction() for _ in range(3)]
    transactions[0].filter_files(parse_predicate("part = 9"))
    transactions[1].filter_files(parse_predicate("part = 3"))
    transactions[2].read_files(["part=1/a"])
    long = "x" * 200
    many = [add(f"part={2 + n % 5}/{long}-{n}") for n in range(2000)]
    log.start_transaction().commit([*many, remove("part=1/a")], "WRITE")
    assert transactions[0].commit([add("part=9/mine")], "WRITE").version == 3
    with pytest.raises(ConcurrentAppendException):
        transactions[1].commit([add("part=9/other")], "WRITE")
    with pytest.raises(ConcurrentDeleteReadException):
        transactions[2].commit([add("part=9/third")], "WRITE")


def test_files_are_read_by_any_spelling_of_their_path() -> None:
    log = new_table(actions=[add("a b"), add("c")])
    transaction = log.start_transaction()
    assert transaction.read_files(["a%20b"]).column("path").to_pylist() == ["a b"]
    assert transaction.read_files([f"{log.store.root_uri}/c"]).num_rows == 1
    assert transaction.reads.paths.to_pylist() == ["a b", "c"]


def test_a_transaction_shows_where_it_is_and_no_more() -> None:
    log = new_table()
    text = repr(log.start_transaction())
    assert text == f"OptimisticTransaction({log.store.root_uri!r}, read_version=0)"
    assert "read_version=-1" in repr(memory_log().start_transaction())
