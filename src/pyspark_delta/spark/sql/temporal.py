"""VERSION AS OF and TIMESTAMP AS OF in statements of Delta's own.

>>> read_as_of(StatementReader("FOR SYSTEM_VERSION AS OF 3"))
AsOf(version=3, timestamp=None)
>>> read_as_of(StatementReader("TIMESTAMP AS OF DATE '2024-01-31'"))
AsOf(version=None, timestamp='2024-01-31')
>>> read_as_of(StatementReader("TBLPROPERTIES ('a' = 'b')")) is None
True
"""

from __future__ import annotations

from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.time_travel import AsOf

_VERSIONS = ("VERSION", "SYSTEM_VERSION")
_TIMES = ("TIMESTAMP", "SYSTEM_TIME")
# A time that comes as an argument has the word of its type before it.
_TYPES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "DATE")


def read_as_of(read: StatementReader) -> AsOf | None:
    """The version or time that comes next; None when neither does."""
    has_for = read.takes("FOR")
    if any(read.takes(word, "AS", "OF") for word in _VERSIONS):
        return AsOf(version=_version(read))
    if any(read.takes(word, "AS", "OF") for word in _TIMES):
        any(read.takes(word) for word in _TYPES)
        return AsOf(timestamp=read.text())
    if has_for:
        raise read.error()
    return None


def _version(read: StatementReader) -> int:
    """A number, which may stand in quotes."""
    if not read.is_text_next():
        return read.whole_number()
    error = read.error()
    text = read.text().strip()
    if not (text.isascii() and text.isdigit()):
        raise error
    return int(text)
