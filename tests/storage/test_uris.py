from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_delta.errors import UnsafePathError
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import (
    ActionPath,
    decode_path,
    encode_path,
    redacted_uri,
    resolve_action_path,
)

ROOT = "file:///data/t%C3%A4%20ble%20100%25"

# What `new java.net.URI(null, null, path, null, null).toString()` leaves as it is, run over every
# character up to U+30FF: these, and above U+00A0 all but the space separators.
KEPT_BY_JAVA = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-!.~'()*,;:$&+=@/"
UNICODE_SPACES = "\u00a0\u1680\u2000\u2005\u200a\u2028\u2029\u202f\u205f\u3000"


def test_ascii_is_escaped_as_java_does() -> None:
    for letter in map(chr, range(128)):
        expected = letter if letter in KEPT_BY_JAVA else f"%{ord(letter):02X}"
        assert encode_path(f"d/a{letter}b") == f"d/a{expected}b"


def test_letters_beyond_ascii_are_escaped_and_read_either_way() -> None:
    for text in ("ä/é/日本/😀", "\u200b\ufeff", "\u0080\u009f", *UNICODE_SPACES):
        encoded = encode_path(text)
        assert encoded.isascii()
        assert decode_path(encoded) == decode_path(text) == text
    assert encode_path("é") == "%C3%A9"


def test_a_colon_in_the_first_segment_does_not_become_a_scheme() -> None:
    assert encode_path("a:b/c:d") == "a%3Ab/c:d"
    assert resolve_action_path(encode_path("file:b"), ROOT).path == "file:b"


def test_hive_escapes_are_escaped_again() -> None:
    assert encode_path("p=a%20b/f.parquet") == "p=a%2520b/f.parquet"
    assert decode_path("_2=bar+%252522/f") == "_2=bar+%2522/f"


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("a%2525%/ä b+c#?")
def test_decoding_undoes_encoding(path: str) -> None:
    assert decode_path(encode_path(path)) == path


@given(st.text())
def test_any_text_is_decoded_or_refused(text: str) -> None:
    try:
        decoded = decode_path(text)
    except UnsafePathError:
        return
    assert decode_path(encode_path(decoded)) == decoded


segments = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1
).filter(lambda segment: segment not in (".", ".."))


@given(st.lists(segments, min_size=1, max_size=4).map("/".join))
def test_all_spellings_of_a_path_are_one(path: str) -> None:
    expected = ActionPath(path=path, is_absolute=False)
    assert resolve_action_path(encode_path(path), ROOT) == expected
    absolute = encode_path("/data/tä ble 100%/" + path)
    for prefix in ("", "file:", "file://", "FILE://", "file://localhost"):
        assert resolve_action_path(prefix + absolute, ROOT) == expected
    assert resolve_action_path(LocalStore("/data/tä ble 100%").address(path), ROOT) == expected


@given(st.text())
@example("%2e%2e/x")
@example("a/..%2f..%2fx")
def test_a_relative_result_never_climbs(text: str) -> None:
    try:
        found = resolve_action_path(text, ROOT)
    except UnsafePathError:
        return
    if not found.is_absolute:
        assert not found.path.startswith("/")
        assert not {"", ".", ".."} & set(found.path.split("/"))


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "/",
        "..",
        "../x",
        "a/../../x",
        "%2e%2e/x",
        "..%2Fx",
        "%2E./x",
        "a/%2e%2E/%2e%2e/x",
        "..//Users/x",
        "_delta_log/../../x",
        "a%00b",
        "a\0b",
        "bad%2",
        "bad%zz",
        "bad%",
        "%ff",
        "%C3",
        "\ud800",
        "%2e%2e%5c..%5cx",
        "..\\x",
        "a//b",
        "a/",
        "/data/t%C3%A4%20ble%20100%25/../x",
        "file:///data/t%C3%A4%20ble%20100%25/../../etc/passwd",
        "file:///data/t%C3%A4%20ble%20100%25/%2e%2e/x",
        "file://host/data/x",
        "file:relative",
        "file:",
        "file://",
        "file:///x?query",
        "file:///x#fragment",
        "//host/x",
        "http://127.0.0.1:9/x",
        "https://example.com/x",
        "s3://bucket/x",
        "data:text/plain,x",
        "a:b",
        "jar:file:///x",
    ],
)
def test_what_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(UnsafePathError) as caught:
        resolve_action_path(path, ROOT)
    assert caught.value.parameters["table"] == ROOT
    assert caught.value.parameters["reason"]


def test_an_absolute_path_outside_is_told_apart_and_has_one_spelling() -> None:
    expected = ActionPath(path="file:///other/with%20space/p@%23h", is_absolute=True)
    for path in (
        "/other/with%20space/p@%23h",
        "file:/other/with%20space/p@%23h",
        "file:///other/with%20space/p@%23h",
        "file:///other//with%20space/p%40%23h",
    ):
        assert resolve_action_path(path, ROOT) == expected
    beside = resolve_action_path("/data/t%C3%A4%20ble%20100%25x/f", ROOT)
    assert beside.is_absolute


def test_a_bucket_is_part_of_the_root() -> None:
    root = "s3://bucket/a%20table"
    assert resolve_action_path("s3a://bucket/a%20table/f", root) == ActionPath(
        path="f", is_absolute=False
    )
    assert resolve_action_path("/a%20table/f", root) == ActionPath(path="f", is_absolute=False)
    assert resolve_action_path("s3://other/f", root) == ActionPath(
        path="s3://other/f", is_absolute=True
    )
    assert resolve_action_path("/f", root) == ActionPath(path="s3://bucket/f", is_absolute=True)
    assert resolve_action_path("s3://bucket/f", "s3://bucket") == ActionPath(
        path="f", is_absolute=False
    )
    azure = "abfss://c@a.dfs.core.windows.net/t"
    found = resolve_action_path("abfs://c@a.dfs.core.windows.net/t/f%20g", azure)
    assert found == ActionPath(path="f g", is_absolute=False)


@pytest.mark.parametrize("path", ["s3:/f", "s3:///f", "s3://bucket/a//b", "file:///f", "gs://b/f"])
def test_a_uri_must_name_a_bucket_of_the_tables_kind(path: str) -> None:
    with pytest.raises(UnsafePathError):
        resolve_action_path(path, "s3://bucket/t")


@pytest.mark.parametrize(
    "path",
    [
        "s3://user:planted@bucket/f",
        "s3://planted@bucket/f",
        "s3://AKIA:plan/planted@bucket/f",
        "s3://bucket/f?X-Amz-Signature=planted",
        "http://user:planted@host/f",
        "https://host/f?sig=planted",
    ],
)
def test_a_refusal_repeats_no_credentials(path: str) -> None:
    with pytest.raises(UnsafePathError) as caught:
        resolve_action_path(path, "s3://bucket/t")
    assert "planted" not in str(caught.value)


def test_a_host_may_have_a_port_where_a_bucket_may_not() -> None:
    found = resolve_action_path("hdfs://name-node:8020/t/a%20b", "hdfs://name-node:8020/t")
    assert found == ActionPath(path="a b", is_absolute=False)
    with pytest.raises(UnsafePathError):
        resolve_action_path("hdfs://me:planted@name-node:8020/t/a", "hdfs://name-node:8020/t")
    with pytest.raises(UnsafePathError):
        resolve_action_path("s3://bucket:8020/t/a", "s3://bucket/t")


def test_redaction_keeps_what_is_not_secret() -> None:
    assert (
        redacted_uri("abfss://c@a.dfs.core.windows.net/t") == "abfss://c@a.dfs.core.windows.net/t"
    )
    assert redacted_uri("s3://bucket/a:b@c") == "s3://bucket/a:b@c"
    assert redacted_uri("https://u:p@host/x?sig=s#f") == "https://host/x..."


@pytest.mark.parametrize("part", ["//a:", "%2e%2e/", "%", "a/../", "//", "s3://a:b@", "\ud800"])
def test_a_long_path_is_refused_quickly_and_shown_in_part(part: str) -> None:
    with pytest.raises(UnsafePathError) as caught:
        resolve_action_path(part * 300_000, ROOT)
    assert len(str(caught.value)) < 12_000


def test_the_root_of_the_file_system_is_a_root_like_others() -> None:
    assert resolve_action_path("/etc/x", "file:///") == ActionPath(path="etc/x", is_absolute=False)
