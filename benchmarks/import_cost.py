"""What loading the code location costs beside `import dagster`, as a ratio of minima in one run.

    python benchmarks/import_cost.py [--rounds 7]

The gate of the house is 1.15.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time


def seconds(module: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.perf_counter() - started


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
