"""The algorithms that the embedded trainer knows; another one is one module with a ``run`` and one line here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

ALGORITHMS = {"dpo": "nvtrader_rl_dagster.local_trainer.dpo"}


def run_algorithm(name: str, config: Path, overrides: list[str]) -> None:
    """Train with NeMo-RL's YAML; any exception ends the process with a traceback and code 1."""
    import_module(ALGORITHMS[name]).run(config, overrides)
