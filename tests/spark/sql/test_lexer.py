"""Our lexer of SQL beside Spark's own: the same tokens, and strings of the same values."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pyspark_delta.kernel.protocol.constraints import constraint_text
from pyspark_delta.kernel.sql.lexer import tokenize, tokens
from pyspark_delta.kernel.sql.quoting import string_literal, string_value
from pyspark_delta.spark.jvm.gateway import JvmSession

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
    found = [token for token in tokenize(text) if token.is_string]
    assert [(token.text, token.value) for token in found] == list(
        zip(literals, values, strict=True)
    )
    assert constraint_text(text) == " , ".join(literals)


_WORDS = st.text("aBdDeEfFlLsSyYxXrR_09é", min_size=1, max_size=4)
_NUMBERS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["1", "09", "1.", "1.5", ".5", "1.5.2", "1..2"]),
    st.sampled_from(["", "e5", "E-5", "e+5", "e", "e+"]),
    st.sampled_from(["", "L", "s", "Y", "f", "D", "BD", "bd", "b", "x", "_"]),
)
_SYMBOLS = st.sampled_from([*"<>=!|:&-+*/%^~.,;()[]?@", "<=>", "->", "=>", "::", "||", "|>", "<>"])
_BLANKS = st.sampled_from(
    [" ", "\n", "\t", "-- a 'b\n", "/* a */", "/* a /* 'b */ */", "-- a\\\nb\n"]
)
_QUOTED = st.text("a `", max_size=3).map(lambda name: "`" + name.replace("`", "``") + "`")
_PIECES = st.one_of(_WORDS, _NUMBERS, _SYMBOLS, _BLANKS, _QUOTED, _LITERALS)


def _tokens_of_spark(spark: SparkSession, text: str) -> list[tuple[int, str]]:
    jvm = JvmSession(spark)
    parser = "org.apache.spark.sql.catalyst.parser"
    stream = jvm.java_class("org.antlr.v4.runtime.CharStreams").fromString(text)
    upper = jvm.java_class(f"{parser}.UpperCaseCharStream")(stream)
    found = jvm.java_class(f"{parser}.SqlBaseLexer")(upper).getAllTokens()
    return [(token.getStartIndex(), token.getText()) for token in found if token.getChannel() == 0]


@pytest.mark.classic
@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.lists(_PIECES, max_size=5).map("".join), min_size=60, max_size=100))
def test_text_has_the_tokens_that_spark_cuts(spark: SparkSession, texts: list[str]) -> None:
    # One behind the other, as each call of the JVM takes its time.
    text = "\n".join(each for each in texts if "/*" not in each.replace("/* a", ""))
    assert [(token.start, token.text) for token in tokens(text)] == _tokens_of_spark(spark, text)
