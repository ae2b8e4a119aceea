"""Which trainer the next training takes, and whether it would start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

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
from nvtrader_rl_dagster.settings import BACKEND_VARIABLE, device_settings

VERSION = "0.6.0"
_ALGO = "dpo"
_NEEDED = ("torch", "ray", "transformers", "nemo_rl")
_EMBEDDED = ("torch", "transformers", "safetensors", "jinja2")
_TIMEOUT_SECONDS = 60
#: Runs in NeMo-RL's own interpreter and tree. Only reads its version file: importing it would start much more.
_PROBE = """
import importlib.util, json, runpy, sys
version = runpy.run_path("nemo_rl/package_info.py")["__version__"]
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
print(json.dumps({"version": version, "missing": missing, "python": sys.version.split()[0]}))
"""


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
    tree, python = nemo_rl_paths()
    asked = _backend() is Backend.NEMO_RL or bool(os.environ.get(SOURCE_VARIABLE) or os.environ.get(PYTHON_VARIABLE))
    if not asked and not tree.exists():
        yield ok("NeMo-RL", f"not set up ({SOURCE_VARIABLE} is not set); the embedded trainer is used")
        return
    script = tree / "examples" / "run_dpo.py"
    if not script.exists():
        yield error("NeMo-RL", f"{script} is not there", f"set {SOURCE_VARIABLE} to a checkout of NeMo-RL {VERSION}")
    elif not os.access(python, os.X_OK) or Path(python).is_dir():
        yield error("NeMo-RL", f"{python} is no interpreter", f"set {PYTHON_VARIABLE} to the Python of its environment")
    else:
        yield _probed(tree, python)


def check_embedded(home: Home) -> Iterator[Finding]:
    """Packages of the embedded trainer. Nothing is imported."""
    missing = [name for name in _EMBEDDED if find_spec(name) is None]
    if not missing:
        yield ok("embedded trainer", f"its packages are installed ({sys.executable})")
        return
    # Scoring runs in it, whatever trained the checkpoint.
    message = f"not installed: {', '.join(missing)}; scoring, and training without NeMo-RL, would fail"
    yield error("embedded trainer", message, "pip install 'nvtrader-rl-dagster[local]'")


def _probed(tree: Path, python: str) -> Finding:
    """What NeMo-RL's own interpreter says about itself."""
    try:
        said = _ask(tree, python)
    except (OSError, subprocess.SubprocessError, ValueError) as problem:
        detail = (getattr(problem, "stderr", None) or str(problem)).strip().splitlines()
        message = f"{python} in {tree}: {detail[-1] if detail else repr(problem)}"
        return error("NeMo-RL", message, f"are {PYTHON_VARIABLE} and {SOURCE_VARIABLE} a NeMo-RL {VERSION} set-up?")
    if said["missing"]:
        packages = ", ".join(said["missing"])
        return error(
            "NeMo-RL", f"{python} lacks {packages}", f"install NeMo-RL's requirements there, or set {PYTHON_VARIABLE}"
        )
    if not said["version"].startswith(VERSION):
        message = f"{tree} is version {said['version']}; configurations are written for {VERSION}"
        return warning("NeMo-RL", message, f"check out v{VERSION}")
    return ok("NeMo-RL", f"{said['version']} in {tree}, Python {said['python']}")


def _ask(tree: Path, python: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-c", _PROBE, *_NEEDED],
        cwd=tree,
        env={**os.environ, "NO_VCS_VERSION": "1"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=True,
    )
    said: dict[str, Any] = orjson.loads(done.stdout.strip().splitlines()[-1])
    return said


def _backend() -> Backend:
    return Backend(device_settings().get("backend", Backend.AUTO))
