"""Which trainer runs, and why: the real NeMo-RL on a GPU, or the embedded trainer."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS

PYTHON_VARIABLE = "NVTRADER_NEMORL_PYTHON"
SOURCE_VARIABLE = "NVTRADER_NEMORL_SRC"
_DEFAULT_SOURCE = Path("third_party/nemo-rl")


class Backend(str, Enum):
    """Which trainer a run uses. `auto` says in the metadata what it took and why."""

    AUTO = "auto"
    NEMO_RL = "nemo_rl"
    LOCAL = "local"


class BackendError(Exception):
    """The backend that was asked for cannot run here; says what is missing."""


@dataclass(frozen=True)
class Trainer:
    """A trainer that can be started. name: `nemo_rl` or `local`. why: for people."""

    name: str
    why: str
    python: str
    source: Path | None = None

    def command(self, algo: str, config: Path) -> list[str]:
        """Command line of one training; NeMo-RL's grammar, all settings in the YAML."""
        if self.source is None:
            return embedded_trainer([algo, "--config", str(config)])
        return [self.python, "-u", f"examples/{ALGOS[algo].script}", "--config", str(config)]

    @property
    def cwd(self) -> Path | None:
        """NeMo-RL looks for prompt files below its working directory."""
        return self.source

    def environment(self, threads: int) -> dict[str, str]:
        if self.source is None:
            return embedded_environment(threads)
        return {**os.environ, "PYTHONUNBUFFERED": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def choose_trainer(backend: Backend, algo: str, python: str = "", source: str = "") -> Trainer:
    """The trainer for an algorithm. Empty paths mean the environment variables, then `third_party/nemo-rl`.

    Raises `BackendError` when the one that was asked for is not there.
    """
    if algo not in ALGOS:
        raise BackendError(f"unknown algorithm {algo!r}; there are: {', '.join(ALGOS)}")
    tree, interpreter = nemo_rl_paths(python, source)
    missing = _missing(tree, interpreter, algo)
    if backend is Backend.NEMO_RL:
        if missing:
            raise BackendError(f"backend nemo_rl: {missing}")
        return Trainer("nemo_rl", "nemo_rl: asked for", interpreter, tree)
    if backend is Backend.AUTO and not missing:
        if gpu_seen():
            return Trainer("nemo_rl", f"nemo_rl: {tree} and a GPU are here", interpreter, tree)
        missing = "no NVIDIA GPU is seen (neither /dev/nvidiactl nor nvidia-smi)"
    if not ALGOS[algo].embedded:
        embedded = ", ".join(name for name, known in ALGOS.items() if known.embedded)
        raise BackendError(f"the embedded trainer has no {algo}; it has: {embedded}. NeMo-RL: {missing or 'not asked'}")
    why = f"local, the embedded trainer: {'asked for' if backend is Backend.LOCAL else missing}"
    return Trainer("local", why, sys.executable)


def nemo_rl_paths(python: str = "", source: str = "") -> tuple[Path, str]:
    """Source tree and interpreter of NeMo-RL, there or not."""
    tree = Path(source or os.environ.get(SOURCE_VARIABLE) or _DEFAULT_SOURCE).expanduser().resolve()
    return tree, python or os.environ.get(PYTHON_VARIABLE) or str(tree / ".venv/bin/python")


def gpu_seen() -> bool:
    """Whether an NVIDIA device is here; no driver call, so that it costs nothing."""
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def _missing(tree: Path, interpreter: str, algo: str) -> str:
    """What keeps NeMo-RL from running; empty when nothing does."""
    script = tree / "examples" / ALGOS[algo].script
    if not script.exists():
        return f"{script} is not there; set {SOURCE_VARIABLE} to the NeMo-RL checkout"
    if not os.access(interpreter, os.X_OK):
        return f"{interpreter} is no interpreter; set {PYTHON_VARIABLE}"
    return ""


def embedded_trainer(arguments: list[str]) -> list[str]:
    """Command of the embedded trainer, in the interpreter that runs us."""
    return [sys.executable, "-u", "-m", "nvtrader_rl_dagster.local_trainer", *arguments]


def embedded_environment(threads: int) -> dict[str, str]:
    """The environment of the embedded trainer: no hub, no telemetry, threads that yield to neighbours."""
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Spinning OpenMP barriers made two threads many times slower beside a busy neighbour.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    return environment
