"""ALTER TABLE as Spark's parser reads it: its plans have the parts that we take out of them."""

from __future__ import annotations

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta.kernel.ops.schema.alter import AddedColumn, ColumnChange, Position
from pyspark_delta.kernel.protocol.types import INTEGER, LONG, STRING, StructField, StructType
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.alters import Arguments, ConstraintClause, parse_alter

N = StructField("n", INTEGER)


def constraint(name: str | None, text: str | None, characteristic: str = "") -> Arguments:
    return {"clause": ConstraintClause(name=name, text=text, characteristic=characteristic)}


EXPECTED: dict[str, tuple[str, Arguments]] = {
    "ADD COLUMNS (s.n INT AFTER m, v VARCHAR(3) COMMENT 'c' FIRST, d INT NOT NULL DEFAULT 1 *2)": (
        "AddColumns",
        {
            "added": (
                AddedColumn(path=("s", "n"), field=N, position=Position(after="m")),
                AddedColumn(
                    path=("v",),
                    field=StructField(
                        "v",
                        STRING,
                        metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)", "comment": "c"},
                    ),
                    position=Position(),
                ),
                AddedColumn(
                    path=("d",),
                    field=StructField("d", INTEGER, False, {"CURRENT_DEFAULT": "1 *2"}),
                ),
            )
        },
    ),
    "DROP COLUMNS IF EXISTS (a, `b.c`.d)": (
        "DropColumns",
        {"paths": (("a",), ("b.c", "d")), "if_exists": True},
    ),
    "RENAME COLUMN a.b TO `c d`": ("RenameColumn", {"path": ("a", "b"), "name": "c d"}),
    "ALTER COLUMN a TYPE INT, b COMMENT 'x', c FIRST, d SET NOT NULL, e DROP DEFAULT": (
        "AlterColumns",
        {
            "changes": (
                ColumnChange(path=("a",), new_type=StructField("a", INTEGER)),
                ColumnChange(path=("b",), comment="x"),
                ColumnChange(path=("c",), position=Position()),
                ColumnChange(path=("d",), nullable=False),
                ColumnChange(path=("e",), drops_default=True),
            )
        },
    ),
    "ALTER COLUMN m.element SET DEFAULT  abs( 1)": (
        "AlterColumns",
        {"changes": (ColumnChange(path=("m", "element"), default="abs( 1)"),)},
    ),
    "CHANGE COLUMN a a BIGINT COMMENT 'x' AFTER b": (
        "AlterColumns",
        {
            "changes": (
                ColumnChange(
                    path=("a",),
                    new_type=StructField("a", LONG),
                    comment="x",
                    position=Position(after="b"),
                ),
            )
        },
    ),
    "REPLACE COLUMNS (n INT)": ("ReplaceColumns", {"columns": StructType((N,))}),
    "SET TBLPROPERTIES (a.b = 'c', 'd' = 1)": (
        "SetTableProperties",
        {"properties": {"a.b": "c", "d": "1"}},
    ),
    "UNSET TBLPROPERTIES IF EXISTS ('a', b.c)": ("UnsetTableProperties", {"keys": ("a", "b.c")}),
    "SET LOCATION '/a b%'": ("SetTableLocation", {"location": "/a b%", "is_of_partition": False}),
    "PARTITION (p = 1) SET LOCATION '/x'": (
        "SetTableLocation",
        {"location": "/x", "is_of_partition": True},
    ),
    "ADD CONSTRAINT `c d` CHECK (a  >0)": ("AddCheckConstraint", constraint("c d", "a  >0")),
    "ADD CHECK (a > 0)": ("AddCheckConstraint", constraint(None, "a > 0")),
    "ADD CONSTRAINT k PRIMARY KEY (a) RELY": ("AddConstraint", constraint("k", None, "RELY")),
    "DROP CONSTRAINT IF EXISTS c CASCADE": (
        "DropConstraint",
        {"name": "c", "if_exists": True, "cascade": True},
    ),
    "CLUSTER BY (a, b.c)": ("AlterTableClusterBy", {"columns": (("a",), ("b", "c"))}),
    "CLUSTER BY NONE": ("AlterTableClusterBy", {"columns": ()}),
    "DEFAULT COLLATION UTF8_LCASE": (
        "AlterTableCollation",
        {"properties": {"collation": "UTF8_LCASE"}},
    ),
    "RECOVER PARTITIONS": ("RecoverPartitions", {}),
    "SET SERDEPROPERTIES ('a' = 'b')": ("SetTableSerDeProperties", {}),
    "ADD PARTITION (p = 1)": ("AddPartitions", {}),
    "DROP PARTITION (p = 1)": ("DropPartitions", {}),
    "PARTITION (p = 1) RENAME TO PARTITION (p = 2)": ("RenamePartitions", {}),
    "RENAME TO u": ("RenameTable", {}),
}


def test_every_form_is_taken_out_of_its_plan(spark: SparkSession) -> None:
    jvm = JvmSession(spark)
    statements = {text: f"ALTER TABLE a.`b c` {text}" for text in EXPECTED}
    found = {text: parse_alter(jvm, sql) for text, sql in statements.items()}
    assert {text: (each.kind, each.arguments) for text, each in found.items()} == EXPECTED
    nameless = {text for text, each in found.items() if each.table is None}
    assert not nameless
    assert {each.table for each in found.values()} == {("a", "b c")}


def test_comments_arguments_and_what_is_no_statement(spark: SparkSession) -> None:
    jvm = JvmSession(spark)
    assert parse_alter(jvm, "COMMENT ON TABLE t IS 'ä'").arguments == {"comment": "ä"}
    assert parse_alter(jvm, "COMMENT ON TABLE t IS NULL").arguments == {"comment": ""}
    bound = parse_alter(jvm, "ALTER TABLE IDENTIFIER(:t) DROP COLUMN a", {"t": "a.b"})
    assert bound.table == ("a", "b")
    with pytest.raises(ParseException):
        parse_alter(jvm, "ALTER TABLE t ALTER COLUMN a SYNC IDENTITY")
