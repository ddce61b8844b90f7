"""What the session says about OPTIMIZE: sizes, how much at a time, how finely rows are ordered.

>>> settings = OptimizeSettings.of({"spark.databricks.delta.optimize.maxThreads": "4"}.get, {})
>>> settings.threads, settings.sizes.small
(4, 1073741824)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pyspark_delta.errors.table import PropertyError
from pyspark_delta.kernel.ops.bin_packing import Sizes
from pyspark_delta.kernel.ops.zcubes import CubeSizes
from pyspark_delta.kernel.protocol.properties import TARGET_FILE_SIZE, property_value
from pyspark_delta.kernel.protocol.property_kinds import FLAG, SIZE, Kind, whole
from pyspark_delta.spark.commands.write_options import Conf

_OPTIMIZE = "spark.databricks.delta.optimize."
_CURVES = "spark.databricks.io.skipping.mdc."
_CUBES = f"{_OPTIMIZE}clustering.mergeStrategy.minCubeSize."
CHECKS_STATS = f"{_OPTIMIZE}zorder.checkStatsCollection.enabled"
"""The setting that lets Z-order go by columns without statistics."""

_T = TypeVar("_T")


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


_SHARE = Kind(_share, "it needs to be a number from 0 to 1")
_SIZE_OR_NONE = Kind(lambda text: 0 if text.strip() == "0" else SIZE.parse(text), SIZE.needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeSettings:
    """The settings of one command.

    `batch_size` is how many bytes are committed together, None for all; `threads` how many jobs
    may run at a time.  `shuffles` brings the rows of a file together by a shuffle.
    """

    sizes: Sizes
    cubes: CubeSizes
    batch_size: int | None
    threads: int
    shuffles: bool
    num_ranges: int
    can_be_noisy: bool
    checks_stats: bool

    @classmethod
    def of(cls, conf: Conf, configuration: Mapping[str, str | None]) -> OptimizeSettings:
        """The session's, or else the table's; PropertyError for a value that means nothing."""

        def found(name: str, kind: Kind[_T], default: _T) -> _T:
            text = conf(name)
            if text is None:
                return default
            try:
                return kind.parse(text)
            except ValueError:
                raise PropertyError(
                    "DELTA_ILLEGAL_OPTION", name=name, input=text, explain=kind.needs
                ) from None

        target = property_value(configuration, TARGET_FILE_SIZE) or Sizes().largest
        cubes = CubeSizes()
        sealed = found(f"{_CUBES}threshold", _SIZE_OR_NONE, cubes.sealed)
        batch_size = found(f"{_OPTIMIZE}batchSize", SIZE, 0)
        return cls(
            sizes=Sizes(
                small=found(f"{_OPTIMIZE}minFileSize", _SIZE_OR_NONE, target),
                largest=max(1, found(f"{_OPTIMIZE}maxFileSize", SIZE, target)),
                deleted=found(f"{_OPTIMIZE}maxDeletedRowsRatio", _SHARE, Sizes().deleted),
            ),
            cubes=CubeSizes(
                sealed=sealed,
                target=found(f"{_CUBES}targetCubeSize", SIZE, max(cubes.target, sealed)),
            ),
            batch_size=batch_size or None,
            threads=found(f"{_OPTIMIZE}maxThreads", whole(1), 15),
            shuffles=found(f"{_OPTIMIZE}repartition.enabled", FLAG, False),
            num_ranges=found(f"{_CURVES}rangeId.max", whole(2), 1000),
            can_be_noisy=found(f"{_CURVES}addNoise", FLAG, True),
            checks_stats=found(CHECKS_STATS, FLAG, True),
        )
