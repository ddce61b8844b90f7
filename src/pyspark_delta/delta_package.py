"""`install_as_delta`: programs that import `delta` get this package, as PyMySQL does for MySQLdb.

Nothing is looked up on disk: `delta` and its modules are put into `sys.modules`, and the version of
the distribution `delta-spark` comes from a finder in `sys.meta_path`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType

from pyspark_delta import errors, tables
from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.spark.session.builder import configure_spark_with_delta_pip
from pyspark_delta.spark.session.enable import enable_delta_spark_builders

_MARK = "__pyspark_delta__"
# The delta-spark whose names, tables and errors these are; programs compare it.
_VERSION = "4.4.0"
# The eight exceptions of delta-spark, which alone are not called errors.
_CONFLICTS: dict[str, object] = {
    name: value for name, value in vars(errors).items() if name.endswith("Exception")
}
# Module -> what delta-spark has there, as far as it is here.
_MODULES: dict[str, dict[str, object]] = {
    "delta": {
        "DeltaTable": tables.DeltaTable,
        "__version__": _VERSION,
        "configure_spark_with_delta_pip": configure_spark_with_delta_pip,
    },
    "delta.tables": {name: getattr(tables, name) for name in tables.__all__},
    "delta.exceptions": _CONFLICTS,
    "delta.exceptions.base": _CONFLICTS,
    "delta.exceptions.captured": _CONFLICTS,
    "delta.pip_utils": {"configure_spark_with_delta_pip": configure_spark_with_delta_pip},
    "delta.version": {"__version__": _VERSION},
}


# What `importlib.metadata` reads of a distribution.
_DISTRIBUTION = {
    "METADATA": f"Metadata-Version: 2.1\nName: delta-spark\nVersion: {_VERSION}\n"
    "Summary: The names of delta-spark, provided by pyspark-delta\n",
    "top_level.txt": "delta\n",
}
_ALL = DistributionFinder.Context()


def install_as_delta() -> None:
    """Let `import delta` and its modules mean this package, for the rest of the process.

    Builders of sessions that name delta-spark's extension, its catalog or its JAR give enabled
    sessions from then on.  Call it before anything imports delta-spark; a second call changes
    nothing.
    """
    present = sys.modules.get("delta")
    if present is not None:
        if getattr(present, _MARK, False):
            return
        raise OperationNotAllowedError(
            "DELTA_PACKAGE_IMPORTED_ALREADY", location=str(getattr(present, "__file__", "delta"))
        )
    for name, members in _MODULES.items():
        sys.modules[name] = _module(name, members)
    for name in _MODULES:
        package, _, child = name.rpartition(".")
        if package:
            setattr(sys.modules[package], child, sys.modules[name])
    # Last in the path: a delta-spark that is installed beside this package has its own version.
    sys.meta_path.append(_Finder())
    enable_delta_spark_builders()


class _Finder(DistributionFinder):
    """Finds the distribution `delta-spark`, and no module."""

    def find_spec(self, *_: object) -> None:
        """None: the modules are in `sys.modules`."""

    def find_distributions(
        self, context: DistributionFinder.Context = _ALL
    ) -> Iterable[Distribution]:
        """The distribution, when all are listed or one is looked up by its name."""
        name = context.name
        if name is None or name.lower().replace("_", "-") == "delta-spark":
            return [_Distribution()]
        return []


class _Distribution(Distribution):
    """The metadata of delta-spark."""

    def read_text(self, filename: str) -> str | None:
        """One of the files of a distribution."""
        return _DISTRIBUTION.get(filename)

    def locate_file(self, path: object) -> Path:
        """The files of the names are those of this package."""
        return Path(__file__).parent


def _module(name: str, members: dict[str, object]) -> ModuleType:
    module = ModuleType(name, "Names of delta-spark, served by pyspark_delta.")
    is_package = any(other.startswith(f"{name}.") for other in _MODULES)
    module.__spec__ = ModuleSpec(name, None, origin="pyspark_delta", is_package=is_package)
    module.__package__ = name if is_package else name.rpartition(".")[0]
    if is_package:
        module.__path__ = []  # a package, with no other modules than these
    module.__dict__.update(members)
    module.__dict__["__all__"] = sorted(members)
    setattr(module, _MARK, True)
    return module
