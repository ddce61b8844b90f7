"""String literals beside Spark's own parser: all of our readers of SQL text agree with it."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pyspark_delta.kernel.scan.sql_tokens import TokenKind, tokenize
from pyspark_delta.kernel.scan.string_literals import string_literal, string_value
from pyspark_delta.spark.sql.check_text import check_text
from pyspark_delta.spark.sql.words import words

_CHARACTERS = st.sampled_from([*"01237 89afuUnbrtZ%_'\"xX-/*`", "\n", "\r", "é", "😀", "\0"])
_CODES = st.one_of(
    st.integers(0, 0o777).map("{:03o}".format),
    st.integers(0, 0xFFFF).map("u{:04x}".format),
    st.integers(0, 0x11FFFF).map("U{:08X}".format),
    st.just("ud83d\\ude00"),
    st.sampled_from(["UFFFFFFFF", "U00110000"]),
)
_ESCAPES = st.one_of(_CODES, _CHARACTERS, st.just("\\")).map(lambda code: f"\\{code}")


def _between(quote: str) -> st.SearchStrategy[str]:
    plain = _CHARACTERS.map(lambda character: quote * 2 if character == quote else character)
    return st.lists(st.one_of(plain, _ESCAPES), max_size=12).map(
        lambda parts: quote + "".join(parts) + quote
    )


def _raw(quote: str) -> st.SearchStrategy[str]:
    body = st.text("ab\\n'\"\n", max_size=6).map(lambda text: text.replace(quote, ""))
    return st.builds(
        lambda letter, text: letter + quote + text + quote, st.sampled_from("rR"), body
    )


_LITERALS = st.one_of(_between("'"), _between('"'), _raw("'"), _raw('"'))


@settings(
    max_examples=5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(_LITERALS, min_size=120, max_size=200))
def test_every_reader_gives_a_string_literal_the_value_of_spark(
    spark: SparkSession, literals: list[str]
) -> None:
    text = ", ".join(literals)
    values = list(map(string_value, literals))
    again = ", ".join(map(string_literal, values))
    assert list(spark.sql(f"SELECT {text}, {again}").collect()[0]) == [*values, *values]
    tokens = [token for token in tokenize(text) if token.kind is TokenKind.STRING]
    assert [token.value for token in tokens] == values
    assert [word.text for word in words(text) if word.is_text] == literals
    assert check_text(text) == " , ".join(literals)
