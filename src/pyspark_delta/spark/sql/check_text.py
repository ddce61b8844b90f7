r"""The text of a CHECK constraint as a table keeps it: its words, one blank between two of them.

delta-spark writes it so, and a condition that both write must be the same text.  Comments go.
Operators and texts that it would tear apart, so that they mean something else, stay whole.

>>> check_text("length(s)<4 /* short */ AND st.a>=1.5 or s!='a  b'")
"length ( s ) < 4 AND st . a >= 1.5 or s != 'a  b'"
"""

from __future__ import annotations

import re

from pyspark_delta.kernel.scan.string_literals import STRING_LITERAL

_TOKEN = re.compile(
    rf"""(?P<blank>\s+ | --(?:\\\n|[^\r\n])* | /\*.*?\*/)
      | {STRING_LITERAL}
      | `(?:[^`]|``)*`
      | (?:\d+\.\d* | \.\d+)(?:[eE][+-]?\d+)?(?:[bB]?[dD])?(?!\w)
      | \d+[eE][+-]?\d+(?:[bB]?[dD])?(?!\w)
      | \w+
      | <=> | <> | != | == | <= | >= | !> | !< | \|\| | :: | -> | => | >>> | >> | << | &&
      | .""",
    re.VERBOSE | re.DOTALL,
)


def check_text(written: str) -> str:
    """The condition as a table keeps it."""
    found = _TOKEN.finditer(written)
    return " ".join(token[0] for token in found if token["blank"] is None)
