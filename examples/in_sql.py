"""The life of a table in SQL alone: made, filled, changed, altered, looked after, taken back."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

_STEPS = (
    (
        "A table with rules",
        """
        CREATE TABLE {table} (
          id BIGINT NOT NULL,
          item STRING COMMENT 'what is sold',
          n INT DEFAULT 0,
          code STRING GENERATED ALWAYS AS (concat(item, '-', id))
        ) USING delta
        TBLPROPERTIES (
          'delta.enableDeletionVectors' = 'true',
          'delta.columnMapping.mode' = 'name',
          'delta.feature.allowColumnDefaults' = 'supported'
        )
        """,
        "ALTER TABLE {table} ADD CONSTRAINT counted CHECK (n >= 0)",
        """
        INSERT INTO {table} (id, item, n)
        VALUES (1, 'tea', 5), (2, 'cups', DEFAULT), (3, 'pot', 4)
        """,
    ),
    (
        "Rows change",
        "UPDATE {table} SET n = n + 1 WHERE item = 'tea'",
        "DELETE FROM {table} WHERE n = 0",
        """
        MERGE INTO {table} t
        USING (SELECT * FROM VALUES (3, 'pot', 9), (4, 'jug', 2) AS v (id, item, n)) s
        ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET n = s.n
        WHEN NOT MATCHED THEN INSERT (id, item, n) VALUES (s.id, s.item, s.n)
        """,
        "SELECT * FROM {table} ORDER BY id",
    ),
    (
        "So does the table",
        "ALTER TABLE {table} ADD COLUMN price DECIMAL(8, 2) AFTER item",
        "ALTER TABLE {table} RENAME COLUMN price TO list_price",
        "DESCRIBE {table}",
    ),
    (
        "It is looked after",
        "OPTIMIZE {table}",
        "VACUUM {table} DRY RUN",
        "DESCRIBE HISTORY {table}",
    ),
    (
        "And taken back",
        "RESTORE TABLE {table} TO VERSION AS OF 2",
        "SELECT * FROM {table} ORDER BY id",
    ),
)
_SHOWN_OF_HISTORY = ["version", "operation", "operationParameters"]


def in_sql(spark: SparkSession, folder: Path) -> None:
    """Every statement, and what the last of each step gives."""
    table = f"delta.`{folder / 'en SQL 100% thé'}`"
    for title, *statements in _STEPS:
        print(f"\n== In SQL: {title} ==")
        for statement in statements:
            result = spark.sql(statement.format(table=table))
        if "operationParameters" in result.columns:
            result = result.select(*_SHOWN_OF_HISTORY)
        if result.columns:
            result.show(truncate=60)
