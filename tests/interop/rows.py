"""Rows that both engines are given, as SQL both understand: values at the ends of every type."""

from __future__ import annotations

# Column -> its type, and a value for each of three rows: the ends of the type, and one between.
TYPES: dict[str, tuple[str, tuple[str, str, str]]] = {
    "bo": ("boolean", ("true", "NULL", "false")),
    "by": ("tinyint", ("-128", "NULL", "127")),
    "sh": ("smallint", ("-32768", "NULL", "32767")),
    "i": ("int", ("-2147483648", "NULL", "2147483647")),
    "l": ("bigint", ("-9223372036854775808", "NULL", "9223372036854775807")),
    "f": ("float", ("float('-inf')", "NULL", "1.4E-45F")),
    "f1": ("float", ("-0.1F", "NULL", "0.1F")),
    "fn": ("float", ("float('nan')", "NULL", "-0.0F")),
    "d": ("double", ("-1.7976931348623157E308D", "NULL", "4.9E-324D")),
    "dn": ("double", ("double('nan')", "double('-0.0')", "double('inf')")),
    "s": ("string", ("''", "NULL", "'wörd 100% / \U0001f600 ' || char(1)")),
    "long_s": ("string", ("repeat('ä', 50)", "NULL", "repeat('\U0010ffff', 40)")),
    "x": ("binary", ("X''", "NULL", "X'00FF80'")),
    "dt": ("date", ("date'0001-01-01'", "date'1582-10-04'", "date'9999-12-31'")),
    "t": (
        "timestamp",
        (
            "timestamp'0001-01-01 00:00:00Z'",
            "timestamp'1582-10-10 12:00:00.000001'",
            "timestamp'9999-12-31 23:59:59.999999Z'",
        ),
    ),
    "t_now": ("timestamp", ("timestamp'2024-11-03 01:30:00Z'", "NULL", "timestamp'1883-11-18'")),
    "n": (
        "timestamp_ntz",
        (
            "timestamp_ntz'0001-01-01 00:00:00'",
            "NULL",
            "timestamp_ntz'9999-12-31 23:59:59.999999'",
        ),
    ),
    "d38": ("decimal(38,0)", ("-" + "9" * 38 + "BD", "NULL", "9" * 38 + "BD")),
    "d38s": ("decimal(38,38)", ("-0." + "9" * 38 + "BD", "NULL", "0." + "0" * 37 + "1BD")),
    "d18": ("decimal(18,2)", ("-9999999999999999.99BD", "NULL", "9999999999999999.99BD")),
    "d9": ("decimal(9,3)", ("-999999.999BD", "0.000BD", "999999.999BD")),
    "d1": ("decimal(1,0)", ("-9BD", "NULL", "9BD")),
}
NESTED: dict[str, tuple[str, tuple[str, str, str]]] = {
    "st": (
        "struct<a:int,b:struct<c:string,d:date>>",
        (
            "named_struct('a', 1, 'b', named_struct('c', 'x', 'd', date'1500-01-01'))",
            "NULL",
            "named_struct('a', NULL, 'b', NULL)",
        ),
    ),
    "ar": ("array<int>", ("array(1, NULL)", "NULL", "array()")),
    "aa": ("array<array<string>>", ("array(array('a'), NULL)", "NULL", "array(array())")),
    "as": ("array<struct<x:bigint>>", ("array(named_struct('x', 1L))", "array(NULL)", "NULL")),
    "m": ("map<string,int>", ("map('k', 1, 'l', NULL)", "NULL", "map()")),
    "ms": (
        "map<int,struct<a:array<double>>>",
        ("map(1, named_struct('a', array(1.5D)))", "NULL", "map(2, NULL)"),
    ),
    "mk": ("map<struct<a:int>,string>", ("map(named_struct('a', 1), 'x')", "NULL", "map()")),
    "v": ("variant", ('parse_json(\'{"a": [1, null, "ü"]}\')', "NULL", "parse_json('1.5')")),
}
# Types a table may be partitioned by, with values that survive it.
PARTITIONS: dict[str, tuple[str, tuple[str, str, str]]] = {
    **{name: TYPES[name] for name in ("bo", "by", "sh", "i", "l", "dt", "n", "d38", "d9")},
    "f": ("float", ("1.5F", "NULL", "-0.1F")),
    "d": ("double", ("1.0E300D", "NULL", "0.1D")),
    "s": ("string", ("'a b'", "NULL", "'%41/=:#?'")),
    "t": (
        "timestamp",
        ("timestamp'2024-11-03 01:30:00Z'", "NULL", "timestamp'1850-01-01 00:00:00.000001Z'"),
    ),
    "x": ("binary", ("X'61'", "NULL", "encode('ä/', 'utf-8')")),
    "d38s": TYPES["d38s"],
}
# Text that stands in directory names and in the log, where it could be read as something else.
STRINGS = (
    "''",
    "NULL",
    "' '",
    "'a b'",
    "'100%'",
    "'%41'",
    "'a%20b'",
    "'é/ü=?#&+:;'",
    "'\\\"\\'*[]{}^|<>~'",
    "'日本'",
    "'\U0001f600'",
    "'a\\\\b'",
    "'.'",
    "'..'",
    "'_hidden'",
    "'NULL'",
    "'tab\\tnew\\nline'",
)


def query(columns: dict[str, tuple[str, tuple[str, str, str]]]) -> str:
    """A SELECT of three rows, numbered by `id`, of these columns."""
    rows = []
    for number in range(3):
        values = (f"CAST({v[number]} AS {kind}) AS `{n}`" for n, (kind, v) in columns.items())
        rows.append(f"SELECT {number} AS id, {', '.join(values)}")
    return " UNION ALL ".join(rows)


def conditions(columns: dict[str, tuple[str, tuple[str, str, str]]]) -> list[str]:
    """For each column: what only the first row satisfies, what only others do, and a null test."""
    found = []
    for name, (kind, values) in columns.items():
        literal = f"CAST({values[0]} AS {kind})"
        found += [f"`{name}` = {literal}", f"`{name}` > {literal}", f"`{name}` IS NULL"]
    return found
