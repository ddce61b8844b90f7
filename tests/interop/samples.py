"""Which of many cases beside delta-spark `make test` runs too; `make interop` runs all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(sample: str, kinds: Iterable[str]) -> list[Any]:
    """All kinds, slow but for the sample."""
    return [
        kind if kind == sample else pytest.param(kind, marks=pytest.mark.slow) for kind in kinds
    ]
