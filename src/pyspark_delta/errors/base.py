"""`DeltaError`: what every error of this package has in common.

An error is a *condition* (delta-spark's name for it), the parameters that delta-spark gives it,
an SQLSTATE and one sentence on what to do.  The sentences are data: `conditions.json`.  The class
says how a caller recovers; the condition says what happened.

>>> error = DeltaError("DELTA_VERSION_NOT_FOUND", userVersion=9, earliest=0, latest=3)
>>> error.condition, error.sqlstate, error.parameters["latest"]
('DELTA_VERSION_NOT_FOUND', '22003', '3')
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

# A parameter may come from a hostile log; beyond this it tells nobody anything.
_LONGEST_SHOWN = 4096

# Newlines and tabs stay: a schema is shown over several lines.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_WORD = re.compile(r"[^\s'\"<>]+")


class DeltaError(Exception):
    """Anything this package refuses to do.

    `condition` is delta-spark's error class, `parameters` its message parameters as text,
    `sqlstate` the five characters that SQL gives the condition.  Neither parameters nor message
    hold the password or the query of an address.
    """

    def __init__(self, condition: str, /, **parameters: object) -> None:
        self.condition = condition
        self.parameters: dict[str, str] = {
            key: without_secrets(str(value)) for key, value in parameters.items()
        }
        entry = conditions()[condition]
        self.sqlstate: str = entry["sqlstate"]
        message = entry["message"].format_map(_Shown(self.parameters))
        super().__init__(f"[{condition}] {message} SQLSTATE: {self.sqlstate}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles exceptions; keyword-only parameters need a way back.
        return (_rebuilt, (type(self), self.condition, self.parameters))

    # PySpark's spelling, so that code written for its errors works on ours.
    def getCondition(self) -> str:
        """The condition, as `PySparkException.getCondition` gives it."""
        return self.condition

    getErrorClass = getCondition

    def getMessageParameters(self) -> dict[str, str]:
        """The parameters, as `PySparkException.getMessageParameters` gives them."""
        return dict(self.parameters)

    def getSqlState(self) -> str:
        """The SQLSTATE, as `PySparkException.getSqlState` gives it."""
        return self.sqlstate

    def getMessage(self) -> str:
        """The whole text, as `PySparkException.getMessage` gives it."""
        return str(self)


class _Shown(dict[str, str]):
    """Parameters as a template shows them; one that was not given shows its own name."""

    def __getitem__(self, key: str) -> str:
        value = super().__getitem__(key)
        if len(value) > _LONGEST_SHOWN:
            value = f"{value[:_LONGEST_SHOWN]}... ({len(value)} characters)"
        return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", value)

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def without_secrets(text: str) -> str:
    """`text` with neither password nor query in any address that stands in it."""
    if "://" not in text:
        return text
    return _WORD.sub(lambda word: _without_secrets_in_address(word[0]), text)


def _without_secrets_in_address(word: str) -> str:
    # Signed addresses carry their secret in the query, older ones as a password.  A user part
    # without a password stays: abfss names its container there.
    scheme, *rest = word.split("://")
    shown = [scheme]
    for part in rest:
        before, query, _ = part.partition("?")
        authority, slash, path = before.partition("/")
        user, at, host = authority.rpartition("@")
        if at and ":" in user:
            authority = f"{user.partition(':')[0]}:***@{host}"
        shown.append(f"{authority}{slash}{path}")
        if query:
            return "://".join(shown) + "?***"
    return "://".join(shown)


def _rebuilt(kind: type[DeltaError], condition: str, parameters: dict[str, str]) -> DeltaError:
    return kind(condition, **parameters)


@cache
def conditions() -> Mapping[str, Mapping[str, str]]:
    """Every condition with its SQLSTATE and message template."""
    text = files(__package__).joinpath("conditions.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, str]] = json.loads(text)
    return MappingProxyType(loaded)
