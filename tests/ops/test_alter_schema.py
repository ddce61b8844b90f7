"""ALTER TABLE on schemas: what each form leaves, what is refused, and that files stay readable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.ops.schema.alter import (
    AddedColumn,
    AlterRules,
    ColumnChange,
    Position,
    add_columns,
    change_columns,
    drop_columns,
    lost_columns,
    rename_column,
    replace_columns,
    spelled_changes,
    spelled_columns,
)
from pyspark_delta.kernel.ops.schema.columns import ResolvedColumn
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode, physical_paths
from pyspark_delta.kernel.protocol.identity_columns import with_identity
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BYTE,
    CHAR_VARCHAR_KEY,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    walk_fields,
)
from pyspark_delta.kernel.txn.definition import Definition, defined

UNRESOLVED = "UNRESOLVED_COLUMN.WITH_SUGGESTION"
PLAIN = AlterRules()
MAPPED = AlterRules(mode=ColumnMappingMode.NAME)
WIDENS = AlterRules(widens=True)
INNER = StructType((StructField("a", INTEGER), StructField("b", STRING)))
SCHEMA = StructType(
    (
        StructField("Id", INTEGER, metadata={"comment": "the id", "kept": 1}),
        StructField("st", INNER),
        StructField("arr", ArrayType(INNER)),
        StructField("m", MapType(STRING, INNER)),
        StructField("n", INTEGER, nullable=False),
    )
)


def added(*path: str, kind: DataType = INTEGER, after: str | None = None) -> AddedColumn:
    position = None if after is None else Position(after=after)
    return AddedColumn(path=path, field=StructField(path[-1], kind), position=position)


def declared(text: str) -> StructField:
    return StructField("c", STRING, metadata={CHAR_VARCHAR_KEY: text})


def altered(
    schema: StructType, changes: list[ColumnChange], rules: AlterRules
) -> tuple[StructType, tuple[ResolvedColumn, ...]]:
    return change_columns(schema, spelled_changes(schema, changes, rules), rules)


def refused(change: Callable[[], object]) -> str:
    with pytest.raises(DeltaError) as found:
        change()
    return found.value.condition


def test_columns_are_added_last_first_or_behind_another_at_any_depth() -> None:
    wanted = [
        added("z"),
        replace(added("first"), position=Position()),
        added("second", after="FIRST"),
        added("ST", "c", after="A"),
        added("arr", "element", "x"),
        added("m", "value", "y"),
    ]
    schema = add_columns(SCHEMA, wanted)
    assert schema.names == ("first", "second", "Id", "st", "arr", "m", "n", "z")
    assert schema["st"].data_type.simple_string == "struct<a:int,c:int,b:string>"
    assert schema["arr"].data_type.simple_string == "array<struct<a:int,b:string,x:int>>"
    assert schema["m"].data_type.simple_string == "map<string,struct<a:int,b:string,y:int>>"
    told = spelled_columns(SCHEMA, wanted)
    assert told[3].path == ("st", "c")
    assert [str(each.position) for each in told[1:4]] == ["FIRST", "AFTER first", "AFTER a"]


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        (added("ID"), "FIELD_ALREADY_EXISTS"),
        (added("st", "A"), "FIELD_ALREADY_EXISTS"),
        (added("no", "x"), UNRESOLVED),
        (added("Id", "x"), "INVALID_FIELD_NAME"),
        (added("arr", "x"), "INVALID_FIELD_NAME"),
        (added("x", after="no"), "FIELD_NOT_FOUND"),
        (
            AddedColumn(path=("x",), field=StructField("x", INTEGER, nullable=False)),
            "DELTA_OPERATION_NOT_ALLOWED",
        ),
        (
            added("x", kind=StructType((StructField("y", LONG, nullable=False),))),
            "DELTA_OPERATION_NOT_ALLOWED",
        ),
        (
            AddedColumn(
                path=("x",), field=StructField("x", INTEGER, metadata={"CURRENT_DEFAULT": "1"})
            ),
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
        ),
    ],
)
def test_a_column_that_cannot_be_added(column: AddedColumn, condition: str) -> None:
    assert refused(lambda: add_columns(SCHEMA, [column])) == condition


def test_two_new_columns_of_one_name_are_refused() -> None:
    twice = [added("x"), added("X")]
    assert refused(lambda: add_columns(SCHEMA, twice)) == "COLUMN_ALREADY_EXISTS"


def test_columns_are_dropped_at_any_depth_and_told_as_they_were_spelled() -> None:
    paths = [("ID",), ("ST", "A"), ("arr", "element", "b"), ("m", "value", "a")]
    schema, dropped = drop_columns(SCHEMA, paths, MAPPED)
    assert schema.simple_string == (
        "struct<st:struct<b:string>,arr:array<struct<a:int>>,m:map<string,struct<b:string>>,n:int>"
    )
    assert dropped[:2] == (("Id",), ("st", "a"))
    assert lost_columns(SCHEMA, schema) == dropped


def test_drops_that_are_refused_and_those_that_are_passed_over() -> None:
    assert refused(lambda: drop_columns(SCHEMA, [("n",)], PLAIN)) == "DELTA_UNSUPPORTED_DROP_COLUMN"
    assert refused(lambda: drop_columns(SCHEMA, [("no",)], MAPPED)) == UNRESOLVED
    assert drop_columns(SCHEMA, [("no",)], MAPPED, if_exists=True) == (SCHEMA, ())
    schema, dropped = drop_columns(SCHEMA, [("no",), ("n",)], MAPPED, if_exists=True)
    assert dropped == (("n",),)
    assert "n" not in schema
    both = [("st", "a"), ("st", "b")]
    assert refused(lambda: drop_columns(SCHEMA, both, MAPPED)) == (
        "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"
    )
    element = [("arr", "element")]
    assert refused(lambda: drop_columns(SCHEMA, element, MAPPED)) == (
        "DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE"
    )


def test_a_renamed_column_keeps_its_place_and_all_that_it_carries() -> None:
    schema, old = rename_column(SCHEMA, ("ID",), "key", MAPPED)
    assert old == ("Id",)
    assert schema.fields[0] == SCHEMA.fields[0].with_name("key")
    nested, old = rename_column(SCHEMA, ("arr", "element", "A"), "x", MAPPED)
    assert old == ("arr", "element", "a")
    assert nested["arr"].data_type.simple_string == "array<struct<x:int,b:string>>"
    assert rename_column(SCHEMA, ("Id",), "ID", MAPPED)[0].names[0] == "ID"
    assert refused(lambda: rename_column(SCHEMA, ("Id",), "ST", MAPPED)) == "FIELD_ALREADY_EXISTS"
    assert refused(lambda: rename_column(SCHEMA, ("Id",), "x", PLAIN)) == (
        "DELTA_UNSUPPORTED_RENAME_COLUMN"
    )
    assert refused(lambda: rename_column(SCHEMA, ("m", "key"), "x", MAPPED)) == "INVALID_FIELD_NAME"


def test_comments_places_defaults_and_nullability_change_one_by_one_or_together() -> None:
    schema, changed = altered(
        SCHEMA,
        [
            ColumnChange(path=("ID",), comment="", position=Position(after="M")),
            ColumnChange(path=("st", "b"), position=Position(), nullable=False),
            ColumnChange(path=("n",), nullable=True, default="5"),
        ],
        PLAIN,
    )
    assert schema.names == ("st", "arr", "m", "Id", "n")
    assert schema["Id"].metadata == {"comment": "", "kept": 1}
    inner = schema["st"].data_type
    assert isinstance(inner, StructType)
    assert [(f.name, f.nullable) for f in inner] == [("b", False), ("a", True)]
    assert (schema["n"].nullable, schema["n"].metadata) == (True, {"CURRENT_DEFAULT": "5"})
    assert [each.path for each in changed] == [("Id",), ("st", "b"), ("n",)]
    bare, _ = altered(
        schema,
        [
            ColumnChange(path=("Id",), drops_comment=True),
            ColumnChange(path=("n",), drops_default=True, position=Position(after="N")),
        ],
        PLAIN,
    )
    assert bare["Id"].metadata == {"kept": 1}
    assert bare.fields[-1] == StructField("n", INTEGER)


def test_types_widen_where_the_table_allows_it_inside_collections_too() -> None:
    changes = [
        ColumnChange(path=("Id",), new_type=StructField("Id", LONG)),
        ColumnChange(path=("arr", "element", "a"), new_type=StructField("a", DOUBLE)),
    ]
    schema, _ = altered(SCHEMA, changes, WIDENS)
    assert schema["Id"].data_type == LONG
    assert schema["Id"].metadata == SCHEMA["Id"].metadata
    assert schema["arr"].data_type.simple_string == "array<struct<a:double,b:string>>"
    numbers = StructType((StructField("m", MapType(BYTE, ArrayType(DATE))),))
    inside, _ = altered(
        numbers,
        [
            ColumnChange(path=("m", "key"), new_type=StructField("key", LONG)),
            ColumnChange(
                path=("m", "value", "element"), new_type=StructField("element", TIMESTAMP_NTZ)
            ),
        ],
        WIDENS,
    )
    assert inside["m"].data_type.simple_string == "map<bigint,array<timestamp_ntz>>"


@pytest.mark.parametrize(
    ("change", "rules", "condition"),
    [
        (ColumnChange(path=("no",), comment="x"), PLAIN, UNRESOLVED),
        (
            ColumnChange(path=("Id",), new_type=StructField("Id", LONG)),
            PLAIN,
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        ),
        (
            ColumnChange(path=("Id",), new_type=StructField("Id", STRING)),
            WIDENS,
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        ),
        (
            ColumnChange(path=("Id",), new_type=StructField("Id", BYTE)),
            WIDENS,
            "NOT_SUPPORTED_CHANGE_COLUMN",
        ),
        (
            ColumnChange(path=("Id",), new_type=StructField("Id", BINARY)),
            WIDENS,
            "NOT_SUPPORTED_CHANGE_COLUMN",
        ),
        (
            ColumnChange(path=("st",), new_type=StructField("st", StructType())),
            WIDENS,
            "CANNOT_UPDATE_FIELD.STRUCT_TYPE",
        ),
        (
            ColumnChange(path=("arr",), new_type=StructField("arr", INTEGER)),
            WIDENS,
            "NOT_SUPPORTED_CHANGE_COLUMN",
        ),
        (
            ColumnChange(path=("arr", "element"), comment="x"),
            PLAIN,
            "DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY",
        ),
        (
            ColumnChange(path=("arr", "element"), nullable=False),
            PLAIN,
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        ),
        (ColumnChange(path=("Id",), position=Position(after="no")), PLAIN, UNRESOLVED),
        (ColumnChange(path=("Id", "x"), comment="x"), PLAIN, "INVALID_FIELD_NAME"),
    ],
)
def test_changes_that_are_refused(change: ColumnChange, rules: AlterRules, condition: str) -> None:
    assert refused(lambda: altered(SCHEMA, [change], rules)) == condition


def test_a_type_that_the_column_has_already_is_no_change() -> None:
    same = ColumnChange(path=("ID",), new_type=StructField("ID", INTEGER))
    assert spelled_changes(SCHEMA, [same], PLAIN) == ()
    more = spelled_changes(SCHEMA, [replace(same, position=Position(after="ST"))], PLAIN)
    assert [(each.path, str(each.position)) for each in more] == [(("Id",), "AFTER st")]


def test_one_column_cannot_be_changed_twice_at_once() -> None:
    inner = [ColumnChange(path=("st",), comment="x"), ColumnChange(path=("st", "a"), comment="y")]
    assert refused(lambda: altered(SCHEMA, inner, PLAIN)) == "NOT_SUPPORTED_CHANGE_SAME_COLUMN"
    twice = [ColumnChange(path=("Id",), comment="x"), ColumnChange(path=("ID",), comment="y")]
    assert refused(lambda: altered(SCHEMA, twice, PLAIN)) == ("NOT_SUPPORTED_CHANGE_SAME_COLUMN")


@pytest.mark.parametrize(
    ("old", "new", "is_allowed"),
    [
        ("varchar(5)", "varchar(9)", True),
        ("varchar(5)", "varchar(3)", False),
        ("char(5)", "varchar(5)", True),
        ("char(5)", "char(6)", False),
        ("varchar(5)", "char(5)", False),
        ("varchar(5)", None, True),
        (None, "varchar(5)", False),
    ],
)
def test_declared_lengths_can_grow(old: str | None, new: str | None, is_allowed: bool) -> None:
    plain = StructField("c", STRING)
    schema = StructType((plain if old is None else declared(old),))
    wanted = plain if new is None else declared(new)
    change = ColumnChange(path=("c",), new_type=wanted)
    if is_allowed:
        assert altered(schema, [change], PLAIN)[0] == StructType((wanted,))
    else:
        assert refused(lambda: altered(schema, [change], PLAIN)) == ("NOT_SUPPORTED_CHANGE_COLUMN")


def test_identity_columns_keep_their_type_and_default_but_not_their_comment() -> None:
    schema = StructType((with_identity(StructField("id", LONG)), StructField("v", LONG)))
    moved, _ = altered(
        schema, [ColumnChange(path=("id",), comment="x", position=Position(after="v"))], PLAIN
    )
    assert moved.names == ("v", "id")
    for change in (
        ColumnChange(path=("id",), new_type=StructField("id", DecimalType(20, 0))),
        ColumnChange(path=("id",), nullable=True),
        ColumnChange(path=("id",), default="1"),
    ):
        assert refused(partial(altered, schema, [change], WIDENS)) == (
            "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"
        )
    assert refused(lambda: replace_columns(schema, schema, PLAIN)) == (
        "DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED"
    )


def test_replaced_columns_keep_what_columns_of_their_name_carry() -> None:
    new = StructType(
        (
            StructField("n", INTEGER),
            StructField("ID", INTEGER, metadata={"comment": "new"}),
            StructField("st", INNER.add(StructField("c", LONG))),
            StructField("arr", ArrayType(INNER)),
            StructField("m", MapType(STRING, INNER)),
        )
    )
    replaced = replace_columns(SCHEMA, new, PLAIN)
    assert replaced.names == ("n", "Id", "st", "arr", "m")
    assert replaced["Id"].metadata == {"comment": "new", "kept": 1}
    assert replaced["n"].nullable
    fewer = StructType(new.fields[:3])
    assert replace_columns(SCHEMA, fewer, MAPPED).names == ("n", "Id", "st")
    assert lost_columns(SCHEMA, replace_columns(SCHEMA, fewer, MAPPED)) == (("arr",), ("m",))
    wider = StructType((StructField("Id", LONG), *new.fields[:1], *new.fields[2:]))
    assert replace_columns(SCHEMA, wider, WIDENS)["Id"].data_type == LONG


@pytest.mark.parametrize(
    ("fields", "rules", "condition"),
    [
        (SCHEMA.fields[:2], PLAIN, "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"),
        (
            (StructField("Id", LONG), *SCHEMA.fields[1:]),
            PLAIN,
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
        ),
        (
            (SCHEMA.fields[0].with_nullable(False), *SCHEMA.fields[1:]),
            PLAIN,
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
        ),
        (
            (*SCHEMA.fields, StructField("x", LONG, nullable=False)),
            PLAIN,
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
        ),
        (
            (SCHEMA.fields[0], StructField("other", LONG)),
            MAPPED,
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
        ),
        ((*SCHEMA.fields, StructField("ID", INTEGER)), PLAIN, "COLUMN_ALREADY_EXISTS"),
        (
            (*SCHEMA.fields[:4], declared("varchar(3)").with_name("n")),
            WIDENS,
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
        ),
    ],
)
def test_replacements_that_are_refused(
    fields: tuple[StructField, ...], rules: AlterRules, condition: str
) -> None:
    assert refused(lambda: replace_columns(SCHEMA, StructType(fields), rules)) == condition


# The naive model: a column is an object, whatever it is called; a file knows columns by object.


@dataclass
class Node:
    """A column of the model; `children` for a struct, reached through `step` if in a collection."""

    name: str
    uid: int
    steps: tuple[str, ...] = ()
    children: list[Node] | None = None


@dataclass
class Table:
    """The model beside the real definition, and what files hold under physical names."""

    definition: Definition
    columns: list[Node]
    uids: Iterator[int] = field(default_factory=lambda: count(1000))
    files: list[tuple[dict[tuple[str, ...], str], dict[int, str]]] = field(default_factory=list)

    @property
    def schema(self) -> StructType:
        return self.definition.metadata.schema

    def leaves(self) -> Iterator[tuple[tuple[str, ...], Node]]:
        yield from _leaves(self.columns, ())

    def structs(self) -> list[tuple[tuple[str, ...], list[Node]]]:
        return [((), self.columns), *_structs(self.columns, ())]

    def change(self, schema: StructType) -> None:
        old = self.definition
        metadata = replace(old.metadata, schema_string=format_schema(schema))
        numbers = self.uids
        self.definition = defined(
            old, metadata, protocol=None, table="t", new_uuid=lambda: f"uuid-{next(numbers)}"
        )

    def write(self) -> None:
        physical = physical_paths(self.schema, ColumnMappingMode.NAME)
        number = len(self.files)
        stored = {physical[path]: f"{number}:{node.uid}" for path, node in self.leaves()}
        self.files.append((stored, {node.uid: f"{number}:{node.uid}" for _, node in self.leaves()}))

    def check(self) -> None:
        paths = [path for path, _ in self.leaves()]
        physical = physical_paths(self.schema, ColumnMappingMode.NAME)
        for stored, known in self.files:
            read = [stored.get(physical[path]) for path in paths]
            assert read == [known.get(node.uid) for _, node in self.leaves()]
        fields = [f for _, f in walk_fields(self.schema)]
        ids = [f.metadata["delta.columnMapping.id"] for f in fields]
        names = [f.metadata["delta.columnMapping.physicalName"] for f in fields]
        assert len(set(ids)) == len(ids)
        assert len(set(physical.values())) == len(names)
        largest = self.definition.metadata.configuration["delta.columnMapping.maxColumnId"]
        assert int(largest or 0) >= max(ids)


def _leaves(nodes: list[Node], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    for node in nodes:
        here = (*path, node.name)
        if node.children is None:
            yield here, node
        else:
            yield from _leaves(node.children, (*here, *node.steps))


def _structs(
    nodes: list[Node], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[Node]]]:
    for node in nodes:
        if node.children is not None:
            here = (*path, node.name, *node.steps)
            yield here, node.children
            yield from _structs(node.children, here)


def _field_of(node: Node) -> StructField:
    if node.children is None:
        return StructField(node.name, LONG)
    struct: DataType = StructType(tuple(map(_field_of, node.children)))
    for step in reversed(node.steps):
        struct = ArrayType(struct) if step == "element" else MapType(STRING, struct)
    return StructField(node.name, struct)


def new_table(is_upgraded: bool) -> Table:
    """A table with columns at all depths; upgraded ones had files before they were mapped."""
    nodes = [
        Node("a", 1),
        Node("s", 2, (), [Node("x", 3), Node("y", 4)]),
        Node("l", 5, ("element",), [Node("x", 6), Node("t", 7, (), [Node("z", 8)])]),
        Node("m", 9, ("value",), [Node("x", 10)]),
    ]
    schema = StructType(tuple(map(_field_of, nodes)))
    numbers = count()
    mapping = {"delta.columnMapping.mode": "name"}
    made = defined(
        None,
        Metadata(
            id="1",
            schema_string=format_schema(schema),
            configuration={} if is_upgraded else mapping,
        ),
        protocol=Protocol(min_reader_version=2, min_writer_version=5),
        table="t",
        new_uuid=lambda: f"first-{next(numbers)}",
    )
    if is_upgraded:
        made = defined(
            made,
            replace(made.metadata, configuration=mapping),
            protocol=None,
            table="t",
            new_uuid=lambda: f"never-{next(numbers)}",
        )
    return Table(made, nodes)


NAMES = ("a", "b", "x", "Y", "a b.c")


def take_step(table: Table, kind: str, which: int, name: str) -> None:
    """One statement on the table and on the model; what the table must refuse, neither does."""
    structs = table.structs()
    parent, nodes = structs[which % len(structs)]
    node = nodes[which % len(nodes)]
    path = (*parent, node.name)
    is_taken = any(each.name.lower() == name.lower() for each in nodes)
    match kind:
        case "add":
            new = Node(name, next(table.uids))
            if which % 3 == 0:
                new.children = [Node("x", next(table.uids))]
                new.steps = ("element",) if which % 2 else ()
            column = AddedColumn(path=(*parent, name), field=_field_of(new))
            if is_taken:
                assert refused(lambda: add_columns(table.schema, [column])) == (
                    "FIELD_ALREADY_EXISTS"
                )
                return
            table.change(add_columns(table.schema, [column]))
            nodes.append(new)
        case "drop":
            if len(nodes) == 1:
                assert refused(lambda: drop_columns(table.schema, [path], MAPPED)) == (
                    "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"
                )
                return
            table.change(drop_columns(table.schema, [path], MAPPED)[0])
            nodes.remove(node)
        case "rename":
            if is_taken and name.lower() != node.name.lower():
                assert refused(lambda: rename_column(table.schema, path, name, MAPPED)) == (
                    "FIELD_ALREADY_EXISTS"
                )
                return
            table.change(rename_column(table.schema, path, name, MAPPED)[0])
            node.name = name
        case "move":
            change = ColumnChange(path=path, position=Position())
            table.change(altered(table.schema, [change], MAPPED)[0])
            nodes.remove(node)
            nodes.insert(0, node)
        case _:
            table.write()


@settings(max_examples=60)
@given(
    is_upgraded=st.booleans(),
    steps=st.lists(
        st.tuples(
            st.sampled_from(("add", "drop", "rename", "move", "write")),
            st.integers(0, 30),
            st.sampled_from(NAMES),
        ),
        max_size=25,
    ),
)
def test_files_are_read_right_after_any_sequence_of_changes(
    is_upgraded: bool, steps: list[tuple[str, int, str]]
) -> None:
    table = new_table(is_upgraded)
    table.write()
    for kind, which, name in steps:
        take_step(table, kind, which, name)
        table.check()
