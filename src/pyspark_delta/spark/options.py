"""Options of reads and writes: keys without case, values checked before anything is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark_delta.errors.table import PropertyError

FILE_SYSTEM_PREFIXES = ("fs.", "dfs.")
"""How options for the file system begin; all others are for Delta or Parquet."""


class DeltaOptions(Mapping[str, str]):
    """What a user gave with `option` and `options`; keys are found whatever their case."""

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
        """Whether a write may bring new columns; None leaves it to the session."""
        return self.flag("mergeSchema")

    @property
    def can_overwrite_schema(self) -> bool | None:
        """Whether a write that replaces all rows may bring another schema; None when not given."""
        return self.flag("overwriteSchema")

    def whole_number(self, key: str) -> int | None:
        """The option as a whole number that is not negative; None when it is not given."""
        text = self.get(key)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            raise PropertyError(
                "DELTA_ILLEGAL_OPTION", input=text, name=key, explain="needs a whole number"
            )
        return int(text)

    def flag(self, key: str) -> bool | None:
        """The option as true or false; None when it is not given."""
        text = self.get(key)
        if text is None:
            return None
        if text.lower() not in ("true", "false"):
            raise PropertyError(
                "DELTA_ILLEGAL_OPTION", input=text, name=key, explain="needs true or false"
            )
        return text.lower() == "true"
