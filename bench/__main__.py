"""`python -m bench`: every workload, as ratios to peers in one run."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from bench import kernel
from bench.measure import report


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 is what the bars are about")
    parser.add_argument("--out", type=Path, default=Path("bench/out/kernel.json"))
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory(prefix="bench ä 100% ") as folder:
        rows = list(kernel.run(Path(folder), options.scale))
    report(rows, options.out)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
