"""Runs when Python starts, by the `.pth` file beside it: Delta by configuration alone.

It is for programs that nobody edits.  Sessions are enabled by `PYSPARK_DELTA=1` in the environment,
by `spark.pyspark_delta.enabled=true` in spark-defaults.conf or a builder, and by delta-spark's
extension and catalog in either, unless its JAR comes with them: such a session is delta-spark's.
Nothing is imported until a program imports PySpark's sessions.
"""

import sys  # and nothing else: every start of Python waits for this module

ENVIRONMENT = "PYSPARK_DELTA"
_SESSIONS = "pyspark.sql.session"
_ENABLED = "spark.pyspark_delta.enabled"
_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
_CLASSES = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.spark.sql.delta.catalog.DeltaCatalog",
)
_ENABLE = "pyspark_delta.spark.session.enable"
_JARS = "pyspark_delta.spark.session.delta_spark_settings"
_YES = ("1", "true", "yes", "on")


class _Finder:
    """Finds PySpark's module of sessions once, and watches its builder."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """The spec of that module; None for all others."""
        if name != _SESSIONS:
            return None
        from importlib.machinery import PathFinder

        sys.meta_path.remove(_Finder)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader:
    """A loader that watches the builder of what it has loaded.

    Spark's workers load PySpark from an archive, whose loader cannot be changed.
    """

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def exec_module(self, module):
        self._loader.exec_module(module)
        watch(module)


def watch(sessions):
    """Let the builder in `pyspark.sql.session` enable sessions that are configured for Delta."""
    from importlib import import_module

    builder = sessions.SparkSession.Builder
    original = builder.getOrCreate

    def getOrCreate(self):
        def option(key):
            return str(self._options.get(key, ""))

        if _names_delta_spark(option):
            if not _is_requested(option) and import_module(_JARS).names_jar(option):
                return original(self)
            # Spark must not look for classes that only delta-spark's JAR has.
            return import_module(_ENABLE).enabled_without_delta_spark(self, original)
        session = original(self)
        if type(session) is sessions.SparkSession and _is_configured(session):
            import_module(_ENABLE).enable(session)
        return session

    getOrCreate.__doc__ = original.__doc__
    builder.getOrCreate = getOrCreate


def _is_configured(session):
    from importlib import import_module

    def setting(key):
        return session.conf.get(key, "")

    if _is_requested(setting):
        return True
    if not _names_delta_spark(setting):
        return False
    return not import_module(_JARS).has_jar(session)


def _is_requested(setting):
    import os

    return os.environ.get(ENVIRONMENT, "").lower() in _YES or setting(_ENABLED).lower() in _YES


def _names_delta_spark(setting):
    return any(name in str(setting(key)) for key in _SETTINGS for name in _CLASSES)


sys.meta_path.insert(0, _Finder)
