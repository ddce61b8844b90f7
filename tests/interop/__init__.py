"""Tables that we and delta-spark write, read, and take turns at."""

import pytest

# What `Pair` asserts is told as in a test: both sides, and where they differ.
pytest.register_assert_rewrite("tests.interop.engines")
