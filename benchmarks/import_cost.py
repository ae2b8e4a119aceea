"""What loading the code location costs beside `import dagster`: CPU seconds, ratio of minima in one run.

    python benchmarks/import_cost.py [--rounds 7]

The gate of the house is 1.15.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile


def seconds(module: str, bytecode: str) -> float:
    """CPU seconds of a fresh interpreter that imports a module whose bytecode is cached, as an installed one's is."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    # Alternating, so that a change of the machine's load meets both.
    with tempfile.TemporaryDirectory() as bytecode:
        pairs = [
            (seconds("dagster", bytecode), seconds("nvtrader_rl_dagster.definitions", bytecode))
            for _ in range(rounds + 1)
        ]
    # The first round writes the bytecode.
    dagster, ours = (min(column) for column in zip(*pairs[1:], strict=True))
    print(f"import dagster {dagster:.3f} s, our definitions {ours:.3f} s: {ours / dagster:.3f} x")


if __name__ == "__main__":
    main()
