"""CREATE TABLE LIKE as Spark's own parser reads it, taken out of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_delta.spark.jvm.gateway import JvmSession, items

_NAMES = ("UnresolvedIdentifier", "UnresolvedTable", "UnresolvedTableOrView")


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeStatement:
    """CREATE TABLE name LIKE source; `stored_as` says that it names a file format of Hive's."""

    name: tuple[str, ...]
    source: tuple[str, ...]
    provider: str | None
    location: str | None
    stored_as: bool
    properties: Mapping[str, str] = field(hash=False)
    if_not_exists: bool


def parse_like(jvm: JvmSession, sql: str) -> LikeStatement | None:
    """The statement that `sql` is; None when it is another, or names a table by an expression."""
    plan = jvm.session.sessionState().sqlParser().parsePlan(sql)
    if plan.getClass().getSimpleName() != "CreateTableLike":
        return None
    name, source = _parts(plan.name()), _parts(plan.source())
    if name is None or source is None:
        return None
    given = jvm.static("scala.jdk.javaapi.CollectionConverters", "asJava")(plan.properties())
    return LikeStatement(
        name=name,
        source=source,
        provider=_option(plan.provider()),
        location=_option(plan.location()),
        stored_as=bool(plan.serdeInfo().isDefined()),
        properties={str(key): str(value) for key, value in given.items()},
        if_not_exists=bool(plan.ifNotExists()),
    )


def _parts(named: Any) -> tuple[str, ...] | None:
    kind = named.getClass().getSimpleName()
    if kind not in _NAMES:
        return None
    parts = named.nameParts() if kind == "UnresolvedIdentifier" else named.multipartIdentifier()
    return tuple(items(parts))


def _option(scala_option: Any) -> str | None:
    return str(scala_option.get()) if scala_option.isDefined() else None
