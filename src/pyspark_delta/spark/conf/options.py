"""Options of reads and writes: case-insensitive keys, with values checked before any I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark_delta.errors import PropertyError

FILE_SYSTEM_PREFIXES = ("fs.", "dfs.")
"""Prefixes of options for the file system; all others are for Delta or Parquet."""


class DeltaOptions(Mapping[str, str]):
    """The options that a user set with `option` and `options`; keys are case-insensitive."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self._given: dict[str, tuple[str, str]] = {}
        for key, value in (given or {}).items():
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                self._given[key.lower()] = (key, text)

    def __getitem__(self, key: str) -> str:
        return self._given[key.lower()][1]

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self._given.values())

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._given

    @property
    def can_merge_schema(self) -> bool | None:
        """Whether a write may add columns; None when the session's setting decides."""
        return self.flag("mergeSchema")

    @property
    def can_overwrite_schema(self) -> bool | None:
        """Whether a write that replaces all rows may change the schema; None when not given."""
        return self.flag("overwriteSchema")

    def whole_number(self, key: str) -> int | None:
        """The option as a whole number that is not negative; None when it is not given."""
        text = self.get(key)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            raise illegal_option(key, text, "needs a whole number")
        return int(text)

    def flag(self, key: str) -> bool | None:
        """The option as true or false; None when it is not given."""
        text = self.get(key)
        if text is None:
            return None
        if text.lower() not in ("true", "false"):
            raise illegal_option(key, text, "needs true or false")
        return text.lower() == "true"


def illegal_option(name: str, value: object, explain: str) -> PropertyError:
    """The error for a value that an option cannot have; `explain` has the reason."""
    return PropertyError("DELTA_ILLEGAL_OPTION", input=value, name=name, explain=explain)
