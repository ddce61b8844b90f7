"""A project of dbt's makes and changes Delta tables, by configuration alone.

dbt runs in its own environment with `PYSPARK_DELTA=1` and imports nothing of ours.  What it made is
read here with the kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta import DeltaLog
from tests.support.reading import open_table, read_table

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DBT = ROOT / ".venv-dbt" / "bin" / "dbt"
SECONDS = 600
FIRST_DAY = "2024-03-01"

CUSTOMERS = """id,name,city,changed_at
1,Ada,Wien,2024-04-01 08:00:00
2,Bob,Graz,2024-01-01 08:00:00
4,Fay,Rom,2024-04-01 08:00:00
"""
ORDERS = """id,customer_id,day,amount,changed_at
1,1,2024-03-01,10.50,2024-03-01 10:00:00
2,2,2024-03-01,99.00,2024-04-01 11:00:00
3,1,2024-03-02,5.25,2024-03-02 09:00:00
4,4,2024-03-02,1.00,2024-04-01 11:00:00
5,4,2024-03-03,2.00,2024-04-01 12:00:00
"""
REFUND = "6,4,2024-03-03,-50.00,2024-04-02 12:00:00\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The project's copy, and what is beside it: the metastore and the tables."""

    home: Path

    @property
    def project(self) -> Path:
        return self.home / "project"

    def dbt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            "PYSPARK_DELTA": "1",
            "SHOP_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        return subprocess.run(
            [DBT, "--no-use-colors", *arguments],
            cwd=self.project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def succeed(self, *arguments: str) -> None:
        done = self.dbt(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def seed(self, name: str, text: str) -> None:
        (self.project / "seeds" / f"{name}.csv").write_text(text, encoding="utf-8")

    def statuses(self) -> dict[str, str]:
        """How each part of the last command ended."""
        return {
            result["unique_id"].split(".")[2]: result["status"]
            for result in self.target("run_results")["results"]
        }

    def target(self, name: str) -> Any:
        return json.loads((self.project / "target" / f"{name}.json").read_text(encoding="utf-8"))

    def path(self, table: str) -> str:
        return str(self.home / "warehouse" / "shop.db" / table)

    def log(self, table: str) -> DeltaLog:
        return open_table(self.path(table))

    def rows(self, table: str) -> list[dict[str, Any]]:
        return read_table(self.path(table))

    def operations(self, table: str) -> list[str]:
        """What each version did, oldest first."""
        return [info.operation or "" for info in reversed(self.log(table).history())]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The project, run twice: other rows are in its seeds the second time."""
    if not DBT.exists():
        reason = "dbt is not installed: run scripts/dbt.sh"
        if os.environ.get("DBT") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    made = Shop(home=tmp_path_factory.mktemp("dbt") / "tä ble 100%")
    shutil.copytree(ROOT / "examples" / "dbt", made.project)
    made.succeed("build")
    made.seed("customers", CUSTOMERS)
    made.seed("orders", ORDERS)
    made.succeed("build")
    return made


def test_every_seed_model_snapshot_and_test_succeeds(shop: Shop) -> None:
    found = shop.statuses()
    assert set(found.values()) == {"success", "pass"}
    assert {"customers", "orders", "orders_merged", "sales_by_day", "customer_totals"} <= set(found)
    assert {"customers_history", "good_customers"} <= set(found)


def test_every_table_is_a_delta_table_and_nothing_else_is_written(shop: Shop) -> None:
    tables = sorted(path.name for path in Path(shop.path("")).iterdir())
    assert tables == [
        *("customer_totals", "customers", "customers_history"),
        *("orders", "orders_merged", "sales_by_day"),
    ]
    assert all(shop.log(table).table_exists for table in tables)


def test_a_seed_is_loaded_anew(shop: Shop) -> None:
    assert [(row["id"], row["city"]) for row in shop.rows("customers")] == [
        (1, "Wien"),
        (2, "Graz"),
        (4, "Rom"),
    ]
    assert shop.log("customers").update().schema.simple_string == (
        "struct<id:bigint,name:string,city:string,changed_at:timestamp>"
    )


def test_an_incremental_model_merges_rows_that_changed(shop: Shop) -> None:
    assert shop.operations("orders_merged") == ["CREATE OR REPLACE TABLE AS SELECT", "MERGE"]
    found = {row["id"]: str(row["amount"]) for row in shop.rows("orders_merged")}
    assert found == {1: "10.50", 2: "99.00", 3: "5.25", 4: "1.00", 5: "2.00"}
    metrics = shop.log("orders_merged").history(1)[0].operation_metrics or {}
    assert metrics["numTargetRowsUpdated"] == "1"
    assert metrics["numTargetRowsInserted"] == "2"


def test_insert_overwrite_replaces_the_partitions_that_have_new_rows(shop: Shop) -> None:
    log = shop.log("sales_by_day")
    assert log.update().metadata.partition_columns == ("day",)
    assert shop.operations("sales_by_day")[0] == "CREATE OR REPLACE TABLE AS SELECT"
    assert log.update().version == 1
    found = {
        str(row["day"]): (row["orders"], str(row["amount"])) for row in shop.rows("sales_by_day")
    }
    # The first day's rows changed too, and the model asked for the days from the last one on.
    assert found == {
        FIRST_DAY: (2, "30.50"),
        "2024-03-02": (2, "6.25"),
        "2024-03-03": (1, "2.00"),
    }
    [(_, actions)] = log.get_changes(1)
    days = {each.partition_values["day"] for each in actions if hasattr(each, "partition_values")}
    assert days == {"2024-03-02", "2024-03-03"}


def test_a_snapshot_keeps_what_rows_were(shop: Shop) -> None:
    assert shop.operations("customers_history") == ["CREATE OR REPLACE TABLE AS SELECT", "MERGE"]
    rows = shop.rows("customers_history")
    found = sorted((r["id"], r["city"], r["dbt_valid_to"] is None) for r in rows)
    assert found == [
        (1, "Köln", False),  # moved
        (1, "Wien", True),
        (2, "Graz", True),
        (3, "Bern", False),  # gone
        (4, "Rom", True),
    ]


def test_a_contract_gives_columns_their_types_and_rules(shop: Shop) -> None:
    snapshot = shop.log("customer_totals").update()
    columns = {field.name: field for field in snapshot.schema}
    kinds = [field.data_type.simple_string for field in columns.values()]
    assert kinds == ["bigint", "string", "decimal(19,2)"]
    assert (columns["id"].nullable, columns["name"].nullable) == (False, True)
    assert columns["total"].comment == "Of all days"
    assert snapshot.metadata.description == "What each customer's orders come to"
    assert snapshot.metadata.configuration["delta.constraints.not_negative"] == "total >= 0"


def test_rows_that_break_a_contract_s_rule_fail_the_model(shop: Shop) -> None:
    shop.seed("orders", ORDERS + REFUND)
    try:
        failed = shop.dbt("build", "--select", "orders", "orders_merged", "customer_totals")
        assert failed.returncode == 1
        assert "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION" in failed.stdout
        assert shop.statuses()["customer_totals"] == "error"
    finally:
        shop.seed("orders", ORDERS)


def test_documentation_tells_each_relation_s_columns(shop: Shop) -> None:
    shop.succeed("docs", "generate")
    catalog = shop.target("catalog")
    assert not catalog["errors"]
    nodes = {key.split(".")[2]: node for key, node in catalog["nodes"].items()}
    assert set(nodes) == {
        *("customers", "orders", "orders_merged", "sales_by_day", "customer_totals"),
        *("good_customers", "customers_history"),
    }
    totals = nodes["customer_totals"]["columns"]
    assert [(name, column["type"]) for name, column in totals.items()] == [
        ("id", "long"),
        ("name", "string"),
        ("total", "decimal(19,2)"),
    ]
