"""Whether NeMo-RL's tree and interpreter can start the script at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, ok, refuse, warn
from nvtrader_rl_dagster.nemo_rl.source_tree import submodules

#: Both releases ask for it (`requires-python`); their locked packages are built for it.
_PYTHON = (3, 13)
_SUBMODULES = "git submodule update --init --recursive"


def is_checkout(tree: Path) -> bool:
    """Whether this is NeMo-RL itself, and not just a folder with a script of that name."""
    return (tree / "nemo_rl" / "algorithms").is_dir()


def check_tree(case: Case) -> Iterator[Finding]:
    """Script, submodules, version and packages."""
    tree = case.trainer.source
    if tree is None:
        return
    script = tree / "examples" / case.release.script
    if not script.is_file():
        remedy = f"check out a release that has {case.algorithm.name}, or set NVTRADER_NEMORL_SRC"
        yield refuse("script_missing", f"{script} is not there", remedy)
        return
    if not is_checkout(tree):
        message = f"{tree} holds no nemo_rl package: its version and packages are not checked"
        yield warn("tree_unknown", message, "point NVTRADER_NEMORL_SRC at a NeMo-RL checkout")
        return
    if case.interpreter is None:
        return
    if case.interpreter.missing:
        message = f"{case.trainer.python} cannot import {', '.join(case.interpreter.missing)}"
        yield refuse("packages_missing", message, "run scripts/bootstrap_nemo_rl.sh, or set NVTRADER_NEMORL_PYTHON")
        return
    yield from _submodules(case, tree)
    if case.interpreter.release("python") < _PYTHON:
        python = f"{case.trainer.python} is Python {case.interpreter.python}"
        message = f"{python}; NeMo-RL asks for 3.13, and may hang after an error"
        yield warn("python_version", message, "run scripts/bootstrap_nemo_rl.sh")
    yield ok("nemo_rl", f"NeMo-RL {case.version} in {tree}")


def _submodules(case: Case, tree: Path) -> Iterator[Finding]:
    """0.6.0's scripts import megatron.core, which comes from a submodule unless it is installed."""
    empty = [path for path, there in submodules(tree).items() if not there]
    if not empty:
        return
    assert case.interpreter is not None
    message = f"empty submodules in {tree}: {', '.join(empty)}"
    remedy = f"run `{_SUBMODULES}` there"
    installed = case.interpreter.megatron_core
    if (case.version == "0.6.0" and not installed) or (case.worker == "megatron" and not installed):
        yield refuse("submodules_missing", message, remedy)
    elif case.worker == "dtensor_v2" and any("Automodel" in path for path in empty):
        yield warn("submodules_missing", f"{message}; the v2 worker is built from Automodel", remedy)
