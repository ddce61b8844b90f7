"""GENERATE: manifests of a table's files, for engines that know no Delta."""

from __future__ import annotations

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.log.symlink_manifests import write_manifests
from pyspark_delta.kernel.txn.delta_log import DeltaLog

_MODES = {"symlink_format_manifest": write_manifests}


def run_generate(log: DeltaLog, mode: str) -> None:
    """Write the manifests of the newest version, all of them."""
    generate = _MODES.get(mode.lower())
    if generate is None:
        raise OperationNotAllowedError(
            "DELTA_MODE_NOT_SUPPORTED", mode=mode, supportedModes=", ".join(_MODES)
        )
    generate(log.update())
