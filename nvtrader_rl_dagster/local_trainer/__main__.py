"""Command line: ``dpo``, ``score``, ``model`` and ``check``."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from pathlib import Path

from nvtrader_rl_dagster.local_trainer.algorithms import ALGORITHMS, run_algorithm

# Above this load, OpenMP threads that spin at barriers make a busy machine 10-30 times slower.
BUSY_LOAD = 0.5


def _prepare_environment() -> None:
    """Settings that must stand before torch and transformers are imported."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > BUSY_LOAD:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m nvtrader_rl_dagster.local_trainer", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in (*ALGORITHMS, "score"):
        text = "log-probs of models on preference pairs" if name == "score" else f"train with {name}"
        command = commands.add_parser(name, help=text)
        command.add_argument("--config", type=Path, required=True, help="YAML file")
        command.add_argument("overrides", nargs="*", help="key.subkey=value, +new.key=value, ~removed.key")
    model = commands.add_parser("model", help="prepare a base model and print one JSON line about it")
    model.add_argument("name", help="builtin:tiny, builtin:smollm2 or a local folder")
    check = commands.add_parser("check", help="load a saved model, let it predict, and print one JSON line")
    check.add_argument("name", help="folder of a Hugging Face model")
    options = parser.parse_args(arguments)
    _prepare_environment()
    if options.command in ("model", "check"):
        from nvtrader_rl_dagster.local_trainer.models import check_model, describe_model

        with contextlib.redirect_stdout(sys.stderr):  # stdout holds the JSON line and nothing else
            answer = (check_model if options.command == "check" else describe_model)(options.name)
        print(json.dumps(answer), flush=True)
    elif options.command == "score":
        from nvtrader_rl_dagster.local_trainer.score import run

        run(options.config, options.overrides)
    else:
        run_algorithm(options.command, options.config, options.overrides)


if __name__ == "__main__":
    main()
