"""`python -m bench`: every workload, as ratios to peers in one run.

The peers are prepared first: delta-spark in an environment of its own, and the generator of data.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench import (
    change_feed,
    dml,
    doors,
    history,
    kernel,
    maintenance,
    optimize,
    pages,
    report,
    spark,
    sql,
    stream_sink,
    stream_source,
)
from bench.drivers import ROOT, drivers
from bench.measure import Result

KERNEL = "kernel"
WORKLOADS = {
    **spark.WORKLOADS,
    **stream_sink.WORKLOADS,
    **stream_source.WORKLOADS,
    **dml.WORKLOADS,
    **change_feed.WORKLOADS,
    **optimize.WORKLOADS,
    **maintenance.WORKLOADS,
    **history.WORKLOADS,
    **sql.WORKLOADS,
    **doors.WORKLOADS,
}
NAMES = (*WORKLOADS, KERNEL)
QUICK_KERNEL_SCALE = 0.02


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small sample: does it still run?")
    parser.add_argument(
        "--only", action="append", choices=NAMES, metavar="NAME", help=f"one of {', '.join(NAMES)}"
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="of Spark, for all peers"
    )
    parser.add_argument(
        "--publish", action="store_true", help="put the numbers of a part among those in docs"
    )
    parser.add_argument(
        "--pages", action="store_true", help="measure nothing: put the known numbers into the pages"
    )
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--chart", type=Path, help="where the picture goes")
    return parser.parse_args()


def results(
    names: list[str], conf: Mapping[str, str], *, is_quick: bool, root: Path
) -> Iterator[Result]:
    if chosen := [name for name in names if name != KERNEL]:
        sizes = spark.QUICK if is_quick else spark.FULL
        with drivers(root / "drivers", conf) as (ours, delta_spark):
            bench = spark.Bench(
                ours=ours, delta_spark=delta_spark, root=root, sizes=sizes, conf=conf
            )
            for name in chosen:
                yield from WORKLOADS[name](bench)
    if KERNEL in names:
        yield from kernel.run(root / "kernel", QUICK_KERNEL_SCALE if is_quick else 1.0)


def main() -> int:
    given = arguments()
    if given.pages:
        pages.write_pages(json.loads((given.json or pages.NUMBERS).read_text(encoding="utf-8")))
        return 0
    is_whole = not (given.only or given.quick or given.conf)
    if given.publish and (given.quick or given.conf):
        raise SystemExit("--publish is for numbers of full size, with the usual settings")
    conf = dict(each.split("=", 1) for each in given.conf)
    names = [name for name in NAMES if not given.only or name in given.only]
    subprocess.run([ROOT / "bench" / "prepare.sh"], check=True)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f}")
    # Numbers of a part, or of a sample, must not pass for those of the whole.
    home = ROOT / "docs" if is_whole or given.publish else ROOT / "bench" / "out"
    path = given.json or home / "benchmarks.json"
    known = report.known_results(path) if given.publish else []
    found = []
    with tempfile.TemporaryDirectory(prefix="bench ä 100% ") as folder:
        for result in results(names, conf, is_quick=given.quick, root=Path(folder)):
            found.append(result)
            print("\n".join(report.table([result]).splitlines()[1:]), flush=True)
            # At once: a run that is stopped has measured something all the same.
            about = report.about_this_run(conf, is_quick=given.quick)
            report.write(path, report.as_json(found, about, known))
    print(f"\n{report.table(found)}\n\n{report.markdown(found)}")
    chart = given.chart or home / "benchmarks.png"
    subprocess.run(
        [ROOT / ".venv-bench" / "bin" / "python", ROOT / "bench" / "chart.py", path, chart],
        check=True,
    )
    return 0 if given.quick or all(result.is_met for result in found) else 1


if __name__ == "__main__":
    sys.exit(main())
