"""Which door the tests go through: `make test DOOR=connect` runs them in a client."""

from __future__ import annotations

import os

IN_CLIENT = os.environ.get("DOOR") == "connect"
"""Whether the session that tests share is one of Spark Connect."""
