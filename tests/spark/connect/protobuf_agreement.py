"""Compares our messages with Protocol Buffers' own library, in a process that has it.

    python -m tests.spark.connect.protobuf_agreement

The library gets descriptors made of the same table of fields: what is compared is the wire format.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.errors import PropertyError
from pyspark_delta.spark.connect.messages import (
    BOOL,
    BYTES,
    DOUBLE,
    INT,
    MESSAGES,
    PACKAGE,
    STRING,
    TEXT_MAP,
    MessageField,
    decoded,
    encoded,
)

_PROTO = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    STRING: _PROTO.TYPE_STRING,
    BYTES: _PROTO.TYPE_BYTES,
    BOOL: _PROTO.TYPE_BOOL,
    INT: _PROTO.TYPE_INT64,
    DOUBLE: _PROTO.TYPE_DOUBLE,
}
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    STRING: _TEXT,
    BYTES: st.binary(max_size=20),
    BOOL: st.booleans(),
    INT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(allow_nan=False),
    TEXT_MAP: st.dictionaries(_TEXT, _TEXT, max_size=3),
}
_DEEPEST = 4


def _field_descriptor(file: Any, owner: Any, number: int, field: MessageField) -> None:
    made = owner.field.add(name=field.name, number=number)
    made.label = _PROTO.LABEL_REPEATED if field.repeats else _PROTO.LABEL_OPTIONAL
    if field.kind in _TYPES:
        made.type = _TYPES[field.kind]
        if not field.repeats:  # so that a default value is on the wire, as in a oneof
            made.proto3_optional = True
            made.oneof_index = len(owner.oneof_decl)
            owner.oneof_decl.add(name=f"_{field.name}")
        return
    made.type = _PROTO.TYPE_MESSAGE
    if field.kind != TEXT_MAP:
        made.type_name = f".{PACKAGE}.{field.kind}"
        return
    entry = owner.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    for place, name in enumerate(("key", "value"), 1):
        optional, text = _PROTO.LABEL_OPTIONAL, _PROTO.TYPE_STRING
        entry.field.add(name=name, number=place, label=optional, type=text)
    made.label = _PROTO.LABEL_REPEATED
    made.type_name = f".{PACKAGE}.{owner.name}.{entry.name}"


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="delta_messages.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        owner = file.message_type.add(name=name)
        for number, field in fields.items():
            _field_descriptor(file, owner, number, field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in MESSAGES
    }


_CLASSES = _classes()


def _values(name: str, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    optional = {}
    for field in MESSAGES[name].values():
        if field.kind in _SCALARS:
            one = _SCALARS[field.kind]
        elif depth < _DEEPEST:
            one = _values(field.kind, depth + 1)
        else:
            continue
        optional[field.name] = st.lists(one, min_size=1, max_size=2) if field.repeats else one
    return st.fixed_dictionaries({}, optional=optional)


def _filled(message: Any, name: str, values: dict[str, Any]) -> Any:
    kinds = {field.name: field for field in MESSAGES[name].values()}
    for key, value in values.items():
        field, place = kinds[key], getattr(message, key)
        if field.kind == TEXT_MAP:
            place.update(value)
        elif field.repeats and field.kind in _TYPES:
            place.extend(value)
        elif field.repeats:
            for each in value:
                _filled(place.add(), field.kind, each)
        elif field.kind in _TYPES:
            setattr(message, key, value)
        else:
            place.SetInParent()
            _filled(place, field.kind, value)
    return message


def _without_empty_maps(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The values as the wire has them: an empty map leaves nothing there."""
    kept = {}
    for field in MESSAGES[name].values():
        value = values.get(field.name)
        if value is None or (field.kind == TEXT_MAP and not value):
            continue
        if field.kind in _SCALARS:
            kept[field.name] = value
        elif field.repeats:
            kept[field.name] = [_without_empty_maps(field.kind, each) for each in value]
        else:
            kept[field.name] = _without_empty_maps(field.kind, value)
    return kept


@st.composite
def _messages(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(MESSAGES)))
    return name, draw(_values(name, 0))


_SETTINGS = settings(max_examples=200, deadline=None, derandomize=True, database=None)


@_SETTINGS
@given(_messages())
def what_we_write_the_library_reads(given_message: tuple[str, dict[str, Any]]) -> None:
    """The library's message of our bytes has the values that were given."""
    name, values = given_message
    parsed = _CLASSES[name].FromString(encoded(name, values))
    assert parsed == _filled(_CLASSES[name](), name, values)


@_SETTINGS
@given(_messages())
def what_the_library_writes_we_read(given_message: tuple[str, dict[str, Any]]) -> None:
    """Our values of the library's bytes are those that were given."""
    name, values = given_message
    data = _filled(_CLASSES[name](), name, values).SerializeToString()
    assert decoded(name, data) == _without_empty_maps(name, values)


@_SETTINGS
@given(st.sampled_from(sorted(MESSAGES)), st.binary(max_size=60))
def garbage_is_an_error_of_ours(name: str, data: bytes) -> None:
    """Bytes that are no message raise a PropertyError, and nothing else."""
    with suppress(PropertyError):
        decoded(name, data)


@_SETTINGS
@given(_messages(), st.data())
def a_message_that_is_cut_is_no_other_error(
    given_message: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    """The first bytes of a message are a message, or a PropertyError."""
    name, values = given_message
    whole = encoded(name, values)
    garbage_is_an_error_of_ours.hypothesis.inner_test(  # type: ignore[attr-defined]
        name, whole[: data.draw(st.integers(0, len(whole)))]
    )


if __name__ == "__main__":
    what_we_write_the_library_reads()
    what_the_library_writes_we_read()
    garbage_is_an_error_of_ours()
    a_message_that_is_cut_is_no_other_error()
