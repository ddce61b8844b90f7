"""The same ALTER statements here and on delta-spark: the same errors, schemas and histories."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pyspark_delta import DeltaLog
from tests.interop.alters import SCRIPTS
from tests.interop.engines import Pair
from tests.interop.samples import sampled

RUN = """
from tests.interop import alters
result = alters.run(spark, alters.SCRIPTS[script], name)
"""
LOCATION = "result = DeltaTable.forName(spark, name).detail().first().location"
_PHYSICAL = re.compile(r"col-[0-9a-f-]{36}")


@pytest.fixture
def name(pair: Pair) -> Iterator[str]:
    """A table that both drop in the end."""
    name = f"t_{uuid4().hex[:12]}"
    yield name
    for engine in (pair.ours, pair.theirs):
        engine.sql(f"DROP TABLE IF EXISTS {name}")


def told(pair: Pair, place: str) -> list[Any]:
    """What each commit says of itself, with lists of columns in the order of their names.

    Scala keeps several changed columns in the order of their hashes.
    """
    return [_settled(commit) for commit in pair.theirs.history(place)]


def _settled(commit: dict[str, Any]) -> dict[str, Any]:
    parameters = {key: _value(text) for key, text in commit["operationParameters"].items()}
    if commit["operation"] == "CHANGE COLUMNS":
        parameters["columns"].sort(key=lambda column: column["name"])
    return {**commit, "operationParameters": parameters}


def _value(text: str | None) -> Any:
    if text is None:
        return None
    plain = _PHYSICAL.sub("col", text)
    return json.loads(plain) if plain.startswith(("[", "{")) else plain


def definition(place: str) -> dict[str, Any]:
    """Schema, layout, properties and protocol, without what no two tables share."""
    snapshot = DeltaLog.for_table(place).update()
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "schema": json.loads(_PHYSICAL.sub("col", metadata.schema_string or "")),
        "partitions": metadata.partition_columns,
        "properties": dict(metadata.configuration),
        "description": metadata.description,
        "versions": (protocol.min_reader_version, protocol.min_writer_version),
        "reader": sorted(protocol.reader_features or ()),
        "writer": sorted(protocol.writer_features or ()),
        "domains": {
            key: _PHYSICAL.sub("col", each.configuration) for key, each in snapshot.domains.items()
        },
    }


@pytest.mark.parametrize("script", sampled("clustered", SCRIPTS))
def test_each_statement_does_the_same_or_is_refused_alike(
    pair: Pair, name: str, script: str
) -> None:
    engines = (pair.ours, pair.theirs)
    ours, theirs = (engine.python(RUN, script=script, name=name) for engine in engines)
    places = [engine.python(LOCATION, name=name).removeprefix("file:") for engine in engines]
    stories = zip_longest(*(told(pair, place) for place in places))
    mine, their_own = map(definition, places)
    differences = {
        "outcomes": {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]},
        "commits": [both for both in stories if both[0] != both[1]],
        "definition": {
            key: (mine[key], their_own[key]) for key in mine if mine[key] != their_own[key]
        },
    }
    assert differences == {"outcomes": {}, "commits": [], "definition": {}}
    for place in places:
        pair.agree(Path(place))
