"""Which trainer runs, and why: the real NeMo-RL on a GPU, or the embedded trainer."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl import environment as environments
from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS, DataShape
from nvtrader_rl_dagster.nemo_rl.versions import DEFAULT_VERSION, version_of

PYTHON_VARIABLE = "NVTRADER_NEMORL_PYTHON"
SOURCE_VARIABLE = "NVTRADER_NEMORL_SRC"
_DEFAULT_SOURCE = Path("third_party/nemo-rl")
_DRIVER = "nvtrader_rl_dagster.nemo_rl.driver"


class Backend(str, Enum):
    """Which trainer a run uses. `auto` says in the metadata what it took and why."""

    AUTO = "auto"
    NEMO_RL = "nemo_rl"
    LOCAL = "local"


class BackendError(Exception):
    """The backend that was asked for cannot run here; says what is missing."""


@dataclass(frozen=True)
class Trainer:
    """A trainer that can be started. name: `nemo_rl` or `local`. why: for people. passed: variables that it gets
    besides the allow-list."""

    name: str
    why: str
    python: str
    source: Path | None = None
    passed: tuple[str, ...] = field(default=(), kw_only=True)

    def command(self, algo: str, config: Path) -> list[str]:
        """Command line of one training; NeMo-RL's grammar, all settings in the YAML.

        Where answers are rewarded, our driver stands before NeMo-RL's script and registers the rewards.
        """
        if self.source is None:
            return embedded_trainer([algo, "--config", str(config)])
        driver = ["-m", _DRIVER] if ALGOS[algo].data is DataShape.PROMPTS else []
        return [self.python, "-u", *driver, f"examples/{_script(self.source, algo)}", "--config", str(config)]

    @property
    def cwd(self) -> Path | None:
        """NeMo-RL looks for prompt files below its working directory."""
        return self.source

    def environment(self, threads: int) -> dict[str, str]:
        """Its whole environment: an allow-list of ours, and what it needs to be told."""
        if self.source is None:
            return embedded_environment(threads, self.passed)
        return environments.nemo_rl_environment(os.environ, self.python, self.source, self.passed)


def choose_trainer(
    backend: Backend, algo: str, python: str = "", source: str = "", pass_environment: Iterable[str] = ()
) -> Trainer:
    """The trainer for an algorithm. Empty paths mean the environment variables, then `third_party/nemo-rl`.

    pass_environment: variables that the trainer gets besides the allow-list, and besides those that
    `NVTRADER_NEMORL_PASS_ENV` names. Raises `BackendError` when the trainer that was asked for is not there.
    """
    if algo not in ALGOS:
        raise BackendError(f"unknown algorithm {algo!r}; there are: {', '.join(ALGOS)}")
    passed = tuple(pass_environment)
    try:
        kept_back = environments.withheld(os.environ, passed)
    except ValueError as error:
        raise BackendError(str(error)) from error
    tree, interpreter = nemo_rl_paths(python, source)
    secrets = (
        f"; not passed on, because they hold credentials: {', '.join(kept_back)} (name in "
        f"{environments.PASS_VARIABLE} what is needed)"
        if kept_back
        else ""
    )
    missing = _missing(tree, interpreter, algo)
    if backend is Backend.NEMO_RL:
        if missing:
            raise BackendError(f"backend nemo_rl: {missing}")
        return Trainer("nemo_rl", f"nemo_rl: asked for{secrets}", interpreter, tree, passed=passed)
    if backend is Backend.AUTO and not missing:
        if gpu_seen():
            why = f"nemo_rl: {tree} and a GPU are here{secrets}"
            return Trainer("nemo_rl", why, interpreter, tree, passed=passed)
        missing = "no NVIDIA GPU is seen (neither /dev/nvidiactl nor nvidia-smi)"
    if not ALGOS[algo].embedded:
        embedded = ", ".join(name for name, known in ALGOS.items() if known.embedded)
        raise BackendError(f"the embedded trainer has no {algo}; it has: {embedded}. NeMo-RL: {missing or 'not asked'}")
    why = f"local, the embedded trainer: {'asked for' if backend is Backend.LOCAL else missing}"
    return Trainer("local", why, sys.executable, passed=passed)


def nemo_rl_paths(python: str = "", source: str = "") -> tuple[Path, str]:
    """Source tree and interpreter of NeMo-RL, there or not."""
    tree = Path(source or os.environ.get(SOURCE_VARIABLE) or _DEFAULT_SOURCE).expanduser().resolve()
    interpreter = Path(python or os.environ.get(PYTHON_VARIABLE) or tree / ".venv/bin/python")
    # It starts in the tree, and must stay a link: a virtual environment is known by its path.
    return tree, str(interpreter.expanduser().absolute())


def gpu_seen() -> bool:
    """Whether an NVIDIA device is here; no driver call, so that it costs nothing."""
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def _missing(tree: Path, interpreter: str, algo: str) -> str:
    """What keeps NeMo-RL from running; empty when nothing does."""
    try:
        script = tree / "examples" / _script(tree, algo)
    except ValueError as error:
        return str(error)
    if not script.exists():
        return f"{script} is not there; set {SOURCE_VARIABLE} to the NeMo-RL checkout"
    if not os.access(interpreter, os.X_OK):
        return f"{interpreter} is no interpreter; set {PYTHON_VARIABLE}"
    return ""


def _script(tree: Path, algo: str) -> str:
    """Name of the run script in this tree. Raises `ValueError` for a release that is not supported."""
    named = (tree / "nemo_rl" / "package_info.py").exists()
    return ALGOS[algo].release(version_of(tree) if named else DEFAULT_VERSION).script


def embedded_trainer(arguments: list[str]) -> list[str]:
    """Command of the embedded trainer, in the interpreter that runs us."""
    return [sys.executable, "-u", "-m", "nvtrader_rl_dagster.local_trainer", *arguments]


def embedded_environment(threads: int, passed: Iterable[str] = ()) -> dict[str, str]:
    """The environment of the embedded trainer, in this process."""
    return environments.embedded_environment(os.environ, threads, passed)
