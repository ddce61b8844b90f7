"""String literals: Spark's rule for escapes, in every place that reads SQL text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.scan.predicates.tree import StartsWith, compare
from pyspark_delta.kernel.sql.quoting import string_literal, string_value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r"'\101'", "A"),
        (r"'\201'", "201"),
        (r"'\3777'", "3777"),
        (r"'\18'", "18"),
        (r"'\0'", "\0"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\U0001F600'", "😀"),
        (r"'\ud83d'", "?"),
        (r"'\u12'", "u12"),
        (r"'\%\_'", r"\%\_"),
        (r"""'a''b""c'""", 'a\'b""c'),
        (r'''"a''b""c"''', "a''b\"c"),
        (r"R'\n\'", "\\n\\"),
    ],
)
def test_an_escape_has_the_value_that_spark_gives_it(written: str, value: str) -> None:
    assert string_value(written) == value
    assert parse_predicate(f"a = {written}") == compare("a", "=", value)


def test_literals_that_follow_each_other_are_one_string() -> None:
    assert parse_predicate("""a = 'x' "y" -- and\n r'\\z'""") == compare("a", "=", "xy\\z")
    assert parse_predicate("a LIKE 'x' '%'") == StartsWith(compare("a", "=", 1).left, "x")


@pytest.mark.parametrize(
    "comment", ["-- b = 1\r", "-- b \\\n = 1\n", "/* b = 1 */", "-- '\n"], ids=repr
)
def test_a_comment_ends_where_it_ends_for_spark(comment: str) -> None:
    assert parse_predicate(f"a {comment} = 2") == compare("a", "=", 2)


@given(st.text())
def test_a_string_that_is_written_is_read_back(value: str) -> None:
    assert string_value(string_literal(value)) == value
