"""Commands of `dml_model` as the text of a statement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.dml_model import Clause, Command, Formula, without_side


def statement(command: Command, path: Path, source: str) -> str:
    """A statement for anything but an append; `source` is the view with the command's rows."""
    target = f"delta.`{path}`"
    if command.kind == "merge":
        assert command.on is not None
        clauses = " ".join(_when(clause) for clause in command.clauses)
        return f"MERGE INTO {target} t USING {source} s ON {command.on.sql} {clauses}"
    where = f" WHERE {without_side(command.condition).sql}" if command.condition else ""
    if command.kind == "replace":
        return f"INSERT INTO {target} REPLACE{where} SELECT * FROM {source}"
    if command.kind == "delete":
        return f"DELETE FROM {target}{where}"
    sets = {name: without_side(formula) for name, formula in command.sets.items()}
    return f"UPDATE {target} SET {_assigned(sets)}{where}"


def _when(clause: Clause) -> str:
    condition = f" AND {clause.condition.sql}" if clause.condition else ""
    return f"WHEN {clause.when.upper()}{condition} THEN {_then(clause)}"


def _then(clause: Clause) -> str:
    if clause.action == "delete":
        return "DELETE"
    if clause.sets is None:
        return "UPDATE SET *" if clause.action == "update" else "INSERT *"
    if clause.action == "update":
        return f"UPDATE SET {_assigned(clause.sets)}"
    values = ", ".join(formula.sql for formula in clause.sets.values())
    return f"INSERT ({', '.join(clause.sets)}) VALUES ({values})"


def _assigned(sets: Mapping[str, Formula]) -> str:
    return ", ".join(f"{name} = {formula.sql}" for name, formula in sets.items())
