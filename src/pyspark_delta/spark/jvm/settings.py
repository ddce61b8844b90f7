"""All settings of a session at once.

`spark.conf.getAll` asks for them one by one, and ends with an exception that PySpark turns into
text: well over a hundred calls.
"""

from __future__ import annotations

import json

from pyspark_delta.spark.jvm.gateway import JvmSession

_MAPPER = "com.fasterxml.jackson.databind.ObjectMapper"


def all_settings(jvm: JvmSession) -> dict[str, str]:
    """Every setting that the session has a value for, as `spark.conf.getAll` gives them."""
    mapper = jvm.remembered(f"{_MAPPER}()", lambda: jvm.java_class(_MAPPER)())
    found: dict[str, str] = json.loads(mapper.writeValueAsString(jvm.session.conf().getAllAsJava()))
    return found
