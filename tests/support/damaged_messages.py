"""Messages of Delta's extension of Spark Connect, and what is left of them when bytes change.

Runs in a client of Spark Connect: Spark's own messages within ours are made by its library.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pyspark_delta.spark.connect.client_session import ClientSession
from pyspark_delta.spark.connect.messages import encoded

_TYPE_URL = "type.googleapis.com/delta.connect."
_BYTES = 256


def valid_messages(spark: Any, path: Path) -> Iterator[tuple[str, str, bytes]]:
    """A message of each kind for a table with the columns `id` and `text`, with kind and name."""
    session = ClientSession(spark)
    table = {"path": {"path": str(path), "hadoop_conf": {"fs.x": "1"}}}
    target = session.relation(session.frame("scan", {"table": table}))
    source = session.relation(spark.range(2).selectExpr("id", "'y' AS text"))
    is_two = session.expression("id = 2")
    change = {"field": session.column_name("text"), "value": session.expression(F.lit("z"))}
    every = {"assignments": [change]}
    clause = {"condition": is_two}
    merge = {
        "target": target,
        "source": source,
        "condition": session.expression(F.lit(True) & F.lit(False)),
        "matched_actions": [{**clause, "update_action": every}, {"delete_action": {}}],
        "not_matched_actions": [{"insert_star_action": {}}],
        "not_matched_by_source_actions": [{**clause, "delete_action": {}}],
        "with_schema_evolution": True,
    }
    relations: dict[str, dict[str, Any]] = {
        "scan": {"table": table},
        "describe_history": {"table": table},
        "describe_detail": {"table": table},
        "convert_to_delta": {
            "identifier": f"parquet.`{path}`",
            "partition_schema_string": "p INT",
        },
        "restore_table": {"table": table, "version": 0},
        "is_delta_table": {"path": str(path)},
        "delete_from_table": {"target": target, "condition": is_two},
        "update_table": {"target": target, "condition": is_two, "assignments": [change]},
        "merge_into_table": merge,
        "optimize_table": {"table": table, "zorder_columns": ["id"]},
    }
    column = {
        "name": "id",
        "data_type": session.data_type("BIGINT"),
        "nullable": True,
        "identity_info": {"start": 1, "step": 1, "allow_explicit_insert": True},
    }
    commands: dict[str, dict[str, Any]] = {
        "clone_table": {"table": table, "target": f"{path}", "is_shallow": True},
        "vacuum_table": {"table": table, "retention_hours": 200.0},
        "upgrade_table_protocol": {"table": table, "reader_version": 1, "writer_version": 2},
        "generate": {"table": table, "mode": "symlink_format_manifest"},
        "create_delta_table": {
            "mode": 2,
            "location": str(path),
            "columns": [column],
            "properties": {"user.x": "1"},
        },
        "add_feature_support": {"table": table, "feature_name": "deletionVectors"},
        "drop_feature_support": {"table": table, "feature_name": "rowTracking"},
    }
    for name, kinds in (("DeltaRelation", relations), ("DeltaCommand", commands)):
        for operation, body in kinds.items():
            yield name, operation, encoded(name, {operation: body})


def damaged(message: bytes, *, keep: bytes, count: int) -> Iterator[bytes]:
    """The message with a byte that is another one, or without some; `keep` is in all of them.

    What is kept is a path: a message with another path would change another directory.
    """
    chance = random.Random(message)
    for number in range(count):
        while True:
            begin = chance.randrange(len(message))
            if number % 2:
                bad = message[:begin] + message[begin + chance.randint(1, 9) :]
            else:
                changed = (message[begin] + chance.randint(1, _BYTES - 1)) % _BYTES
                bad = message[:begin] + bytes([changed]) + message[begin + 1 :]
            if bad.count(keep) == message.count(keep) and bad != message:
                break
        yield bad


def send(spark: Any, kind: str, message: bytes) -> tuple[str | None, str | None] | None:
    """Condition and SQLSTATE of the error of a message; None for one that is accepted."""
    proto = import_module("pyspark.sql.connect.proto")
    carrier = proto.Plan() if kind == "DeltaRelation" else proto.Command()
    extension = carrier.root.extension if kind == "DeltaRelation" else carrier.extension
    extension.type_url, extension.value = _TYPE_URL + kind, message
    try:
        if kind == "DeltaRelation":
            spark.client.to_table(carrier, {})
        else:
            spark.client.execute_command(carrier)
    except PySparkException as error:
        return error.getCondition(), error.getSqlState()
    return None


def known_conditions() -> set[str]:
    """The conditions of Spark and of Delta; those below others by their whole name."""
    ours = json.loads(files("pyspark_delta").joinpath("conditions.json").read_text("utf-8"))
    known = set(ours)
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("spark-common-utils_*.jar")
    with ZipFile(jar) as archive:
        theirs = json.loads(archive.read("error/error-conditions.json"))
    for name, row in theirs.items():
        known |= {name, *(f"{name}.{below}" for below in row.get("subClass", ()))}
    return known
