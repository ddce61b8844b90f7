r"""The text of EXPLAIN for a command: Spark's plans of the rows it works on, below its own name.

>>> plan = "== Physical Plan ==\n*(1) Filter (id#0 = 1)\n+- Scan\n\n"
>>> print(below(plan, "DeleteCommand t").rstrip())
== Physical Plan ==
Execute DeleteCommand t
+- *(1) Filter (id#0 = 1)
   +- Scan
"""

from __future__ import annotations

import re

_SECTION = re.compile(r"== (?P<name>[\w ]+) ==")
_PHYSICAL = "Physical Plan"


def below(text: str, command: str) -> str:
    """`text` as Spark's EXPLAIN gives it, each of its plans as the only child of `command`."""
    lines: list[str] = []
    place = ""  # "name" behind a heading, "tree" inside of the plan that follows it
    for line in text.split("\n"):
        found = _SECTION.fullmatch(line)
        if found is not None:
            is_physical = found["name"] == _PHYSICAL
            lines += (line, f"Execute {command}" if is_physical else command)
            place = "name"
        elif place and line:
            lines.append(f"+- {line}" if place == "name" else f"   {line}")
            place = "tree"
        else:
            lines.append(line)
            place = ""
    return "\n".join(lines)
