"""Which trainer the next training takes, and whether it would start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from nvtrader_rl_dagster.doctor.finding import Finding, error, ok, warning
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.backends import (
    PYTHON_VARIABLE,
    SOURCE_VARIABLE,
    Backend,
    BackendError,
    Trainer,
    choose_trainer,
    nemo_rl_paths,
)
from nvtrader_rl_dagster.nemo_rl.env_report import BOOTSTRAP, EnvReport, env_report, placeholder_installed
from nvtrader_rl_dagster.settings import BACKEND_VARIABLE, device_settings

_ALGO = "dpo"
_EMBEDDED = ("torch", "transformers", "safetensors", "jinja2")


def chosen_trainer() -> Trainer | None:
    """The trainer of the next DPO training; None when it cannot be had."""
    try:
        return choose_trainer(_backend(), _ALGO)
    except (BackendError, ValueError):
        return None


def check_trainer(home: Home) -> Iterator[Finding]:
    """What the next training runs with, and why."""
    try:
        yield ok("trainer", choose_trainer(_backend(), _ALGO).why)
    except BackendError as problem:
        yield error("trainer", str(problem), f"correct the path, or set {BACKEND_VARIABLE}=auto")


def check_nemo_rl(home: Home) -> Iterator[Finding]:
    """NeMo-RL's source tree and interpreter, if they are set or asked for."""
    tree, _ = nemo_rl_paths()
    asked = _backend() is Backend.NEMO_RL or bool(os.environ.get(SOURCE_VARIABLE) or os.environ.get(PYTHON_VARIABLE))
    if not asked and not tree.exists():
        yield ok("NeMo-RL", f"not set up ({SOURCE_VARIABLE} is not set); the embedded trainer is used")
    else:
        yield _finding(env_report(_backend()))
    if placeholder_installed():
        message = "nemo-rl 0.0.0 from PyPI is installed here; it is an empty placeholder, not NeMo-RL"
        yield warning("NeMo-RL", message, f"{sys.executable} -m pip uninstall nemo-rl")


def check_embedded(home: Home) -> Iterator[Finding]:
    """Packages of the embedded trainer. Nothing is imported."""
    missing = [name for name in _EMBEDDED if find_spec(name) is None]
    if not missing:
        yield ok("embedded trainer", f"its packages are installed ({sys.executable})")
        return
    # Scoring runs in it, whatever trained the checkpoint.
    message = f"not installed: {', '.join(missing)}; scoring, and training without NeMo-RL, would fail"
    yield error("embedded trainer", message, "pip install 'nvtrader-rl-dagster[local]'")


def _finding(report: EnvReport) -> Finding:
    # That there is no GPU is the matter of another check.
    missing = [item for item in report.missing if item.step or report.gpus]
    said = [*report.problems, *(item.what for item in missing if item.what not in report.problems)]
    if said:
        worse = error if report.problems or any(item.blocks for item in missing) else warning
        several = f"{BOOTSTRAP} does all of it, --check says what is left"
        return worse("NeMo-RL", "; ".join(said), missing[0].fix if len(said) == len(missing) == 1 else several)
    commit = f" at {report.source.commit[:9]}" if report.source.commit else ""
    python = report.interpreter.python if report.interpreter else "?"
    torch = f", torch {report.torch.version}" if report.torch else ""
    return ok("NeMo-RL", f"{report.source.version} in {report.source.path}{commit}, Python {python}{torch}")


def _backend() -> Backend:
    return Backend(device_settings().get("backend", Backend.AUTO))
