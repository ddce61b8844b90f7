"""Prints docs/settings.md, made of the table of settings: `python scripts/settings_page.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark_delta.spark.conf.setting_table import HONOURED, NOT_HONOURED
from pyspark_delta.spark.conf.settings import OWN_PREFIX, Setting, SettingFamily


def settings_page() -> str:
    """The text of the page."""
    rows = sorted(HONOURED, key=lambda row: row.key)
    own = [row for row in rows if row.key.startswith(OWN_PREFIX)]
    lines = [
        "# Settings",
        "",
        "Settings of a Spark session (`spark.conf.set`), and what they do. A command that reads a",
        "setting refuses other values than these with `DELTA_ILLEGAL_OPTION`.",
        "",
        "## Settings of delta-spark",
        "",
        *_table("delta-spark", [row for row in rows if row not in own]),
        "",
        "## Settings of pyspark-delta",
        "",
        *_table("pyspark-delta", own),
        "",
        "## Not applicable",
        "",
        "A key of `spark.databricks.delta.` that has no effect is named in a warning of the logger",
        "`pyspark_delta.spark.conf.session_settings`, once for each session.",
        "",
        "| key | in delta-spark | why it has no effect |",
        "|---|---|---|",
        *(f"| `{row.key}` | {row.effect} | {row.reason} |" for row in NOT_HONOURED),
    ]
    return "\n".join(lines) + "\n"


def _table(origin: str, rows: Iterable[Setting[Any] | SettingFamily]) -> list[str]:
    return [
        "| key | values | default | origin | effect |",
        "|---|---|---|---|---|",
        *(f"| `{row.key}` | {_values(row)} | {origin} | {row.effect} |" for row in rows),
    ]


def _values(row: Setting[Any] | SettingFamily) -> str:
    if isinstance(row, SettingFamily):
        return "text | not set"
    values = row.kind.needs.removeprefix("it needs to be ")
    if row.default is None:
        return f"{values} | {row.default_text}"
    return f"{values} | `{row.default_text}`" if row.default_text else f"{values} | not set"


if __name__ == "__main__":
    print(settings_page(), end="")
