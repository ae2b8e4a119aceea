"""`python -m nvtrader_rl_dagster.nemo_rl.driver SCRIPT --config FILE [overrides]`, in NeMo-RL's tree.

Registers environments, then runs SCRIPT as Python itself would, with its arguments unchanged.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.driver.registration import register


def main() -> None:
    parser = argparse.ArgumentParser(prog="nvtrader_rl_dagster.nemo_rl.driver")
    parser.add_argument("script", type=Path, help="NeMo-RL's run script, for example examples/run_grpo.py")
    parser.add_argument("--config", type=Path, required=True, help="YAML file")
    options, _ = parser.parse_known_args()
    sys.argv = sys.argv[1:]
    # The first entry is the script's folder when Python runs a script; `-m` had put the working directory there.
    sys.path[0] = str(options.script.resolve().parent)
    register(options.config)
    runpy.run_path(str(options.script), run_name="__main__")


if __name__ == "__main__":
    main()
