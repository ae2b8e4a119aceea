"""What loading the code location costs beside `import dagster`: CPU seconds, ratio of minima in one run.

    python benchmarks/import_cost.py [--rounds 7]

The gate of the house is 1.15.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys


def seconds(module: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    # Alternating, so that a change of the machine's load meets both.
    pairs = [(seconds("dagster"), seconds("nvtrader_rl_dagster.definitions")) for _ in range(rounds)]
    dagster, ours = (min(column) for column in zip(*pairs, strict=True))
    print(f"import dagster {dagster:.3f} s, our definitions {ours:.3f} s: {ours / dagster:.3f} x")


if __name__ == "__main__":
    main()
