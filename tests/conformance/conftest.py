"""What the conformance tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.guarded import GuardedReader


@pytest.fixture(scope="session")
def guarded() -> Iterator[GuardedReader]:
    """A reader in a process of its own; see `tests.support.guarded`."""
    reader = GuardedReader()
    yield reader
    reader.close()
