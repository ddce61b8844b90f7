"""Makes the classes of the hooks in a JVM: compiled by Spark's own Janino, or from a cache.

Spark has no JAR of ours to load, so the classes are defined in the loader that has Spark's own:
every other loader asks it first, those of Spark Connect's sessions too.  Compiling takes seconds,
so the bytecode is kept on disk, by the version and build of Spark and the text of the classes.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark_delta.spark.jvm.gateway import JvmSession

_BRIDGE = "pyspark_delta.Bridge"
_COMPILER = "org.codehaus.janino.SimpleCompiler"
_PARSER = "org.apache.spark.sql.catalyst.parser.ParserInterface"
_CONNECT_PLANNER = "org.apache.spark.sql.connect.planner.SparkConnectPlanner"
_PARSER_MARK = "//PARSER"
_DIGEST_SIZE = hashlib.sha256().digest_size
# In the order of definition: a class comes after those that it extends.
_SOURCES = (
    *("Statements.java", "Hooks.java", "DefaultSource.java", "DeltaScans.java"),
    "SessionObject.java",
)
_CONNECT_SOURCES = ("ConnectPlugins.java",)
# Spark loads the class of a format by the name that the user writes.
_OTHER_SPELLINGS = ("DELTA", "Delta")
_DECLARED = re.compile(
    r"^\s*(?:public |private |static |final |abstract )*(?:class|interface) (\w+)", re.M
)


def load_classes(jvm: JvmSession, cache: Path | None) -> None:
    """Define the classes, if this JVM does not have them; `cache` is a directory for bytecode."""
    if _is_defined(jvm, _BRIDGE):
        return
    jvm.accept_callbacks()
    loader = jvm.static("java.lang.ClassLoader", "getSystemClassLoader")()
    define = _define_method(jvm)
    texts = _texts(jvm)
    place = None if cache is None else cache / f"{_key(jvm, texts)}.zip"
    kept = None if place is None else _kept(place)
    if kept is not None:
        for name, code in kept.items():
            define(loader, name, code)
        return
    made: dict[str, bytes] = {}
    for text in texts:
        for name, code in _compiled(jvm, loader, text):
            define(loader, name, code)
            made[name] = code
    if place is not None:
        _keep(place, made)


def _texts(jvm: JvmSession) -> list[str]:
    home = files("pyspark_delta.spark.jvm") / "hooks"
    names = [*_SOURCES, *(_CONNECT_SOURCES if _is_defined(jvm, _CONNECT_PLANNER) else ())]
    spelled = [
        f"package {name};\n\npublic class DefaultSource extends delta.DefaultSource {{}}\n"
        for name in _OTHER_SPELLINGS
    ]
    return [*((home / name).read_text(encoding="utf-8") for name in names), *spelled]


def _is_defined(jvm: JvmSession, name: str) -> bool:
    loader = jvm.static("java.lang.ClassLoader", "getSystemClassLoader")()
    return loader.getResource(name.replace(".", "/") + ".class") is not None or _is_found(jvm, name)


def _is_found(jvm: JvmSession, name: str) -> bool:
    return bool(jvm.static("org.apache.spark.util.Utils", "classIsLoadable")(name))


def _define_method(jvm: JvmSession) -> Any:
    """`ClassLoader.defineClass`, which Spark's launcher opens to reflection."""
    found = jvm.static("java.lang.Class", "forName")("java.lang.ClassLoader").getDeclaredMethods()
    method = next(
        each for each in found if each.getName() == "defineClass" and each.getParameterCount() == 4
    )
    method.setAccessible(True)
    objects = jvm.java_class("java.lang.Object")

    def define(loader: Any, name: str, code: bytes) -> None:
        given = (name, bytearray(code), 0, len(code))
        method.invoke(loader, jvm.array(objects, given))

    return define


def _compiled(jvm: JvmSession, loader: Any, text: str) -> Iterator[tuple[str, bytes]]:
    """The classes of a compilation unit, in the order of their declarations."""
    if _PARSER_MARK in text:
        text = text.replace(_PARSER_MARK, _parser_class(jvm))
    compiler = jvm.java_class(_COMPILER)()
    compiler.setParentClassLoader(loader)
    compiler.cook(text)
    made = {str(name): bytes(code) for name, code in dict(compiler.getBytecodes()).items()}
    order = _DECLARED.findall(text)

    def place(name: str) -> tuple[int, str]:
        outer = name.rpartition(".")[2].split("$")
        known = [order.index(part) for part in outer if part in order]
        return (max(known, default=len(order)), name)

    return ((name, made[name]) for name in sorted(made, key=place))


def _parser_class(jvm: JvmSession) -> str:
    """A class with every method of this Spark's parsers, which differ from version to version.

    A proxy of Java's would not do: it wraps errors that a method does not declare.
    """
    methods = []
    modifiers = jvm.java_class("java.lang.reflect.Modifier")
    for method in jvm.static("java.lang.Class", "forName")(_PARSER).getMethods():
        if modifiers.isStatic(method.getModifiers()):
            continue
        kinds = [kind.getTypeName() for kind in method.getParameterTypes()]
        methods.append(
            _parser_method(method.getReturnType().getTypeName(), method.getName(), kinds)
        )
    return f"""
public final class Parser implements ParserInterface {{
    private final ParserInterface sparks;
    private final Object session;

    public Parser(Object session, ParserInterface sparks) {{
        this.session = session;
        this.sparks = sparks;
    }}

    public ParserInterface sparks() {{
        return sparks;
    }}
{"".join(methods)}}}
"""


def _parser_method(returned: str, name: str, kinds: list[str]) -> str:
    given = ", ".join(f"{kind} a{i}" for i, kind in enumerate(kinds))
    passed = ", ".join(f"a{i}" for i in range(len(kinds)))
    ours = ""
    if name in ("parsePlan", "parsePlanWithParameters"):
        rest = "".join(f", a{i}" for i in range(1, len(kinds)))
        parameters = "a1" if len(kinds) > 1 else "null"
        ours = f"""
            Object found = Bridge.parsed(session, a0, {parameters});
            if (found instanceof LogicalPlan) {{ return (LogicalPlan) found; }}
            if (found instanceof String) {{
                try {{
                    return sparks.{name}((String) found{rest});
                }} catch (Exception error) {{
                    // Below, the error shows the statement as the user wrote it.
                }}
            }}"""
    if name == "parseMultipartIdentifier":
        return f"""
    public {returned} {name}({given}) {{
        try {{
            return Bridge.named(sparks.{name}({passed}));
        }} catch (Throwable error) {{
            Platform.throwException(error);
            return null;
        }}
    }}
"""
    result = "" if returned == "void" else "return "
    nothing = "" if returned == "void" else "return null;"
    return f"""
    public {returned} {name}({given}) {{
        try {{{ours}
            {result}sparks.{name}({passed});
        }} catch (Throwable error) {{
            Platform.throwException(error);
            {nothing}
        }}
    }}
"""


def _key(jvm: JvmSession, texts: list[str]) -> str:
    """What the bytecode depends on: our text, and the build of Spark."""
    digest = hashlib.sha256()
    code = jvm.static("java.lang.Class", "forName")(_PARSER).getProtectionDomain().getCodeSource()
    jar = Path(str(code.getLocation().getPath()))
    size = jar.stat().st_size if jar.is_file() else 0
    generator = Path(__file__).read_bytes()
    for part in (jvm.spark.version, jar.name, str(size), *texts):
        digest.update(part.encode() + b"\0")
    digest.update(generator)
    return digest.hexdigest()[:40]


def _kept(place: Path) -> Mapping[str, bytes] | None:
    """Bytecode from the cache; None unless the file is the user's alone, as it is run as it is."""
    try:
        with place.open("rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o022:
                return None
            digest, packed = file.read(_DIGEST_SIZE), file.read()
    except OSError:
        return None
    if hashlib.sha256(packed).digest() != digest:
        return None  # what a crash of the machine left of it
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _keep(place: Path, made: Mapping[str, bytes]) -> None:
    """Write the cache; a cache that cannot be written costs time, and nothing else."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, code in made.items():
            archive.writestr(name, code)
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
            file.write(hashlib.sha256(packed.getvalue()).digest() + packed.getvalue())
        Path(file.name).replace(place)
    except OSError:
        return
