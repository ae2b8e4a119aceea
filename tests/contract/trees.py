"""Where the real NeMo-RL is, and how its Python is started on a machine without a GPU.

NVTRADER_NEMORL_SRC: one checkout, or several joined by ':'. NVTRADER_NEMORL_PYTHON: an interpreter with NeMo-RL's
packages. Without a GPU a stand-in for CUDA must be there: a folder with a `sitecustomize.py` that is switched on by
NRL_CPU_SHIM=1, at NVTRADER_NEMORL_CPU_SHIM or beside the project.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.backends import PYTHON_VARIABLE, SOURCE_VARIABLE, gpu_seen
from nvtrader_rl_dagster.nemo_rl.versions import version_of

_SHIM_VARIABLE = "NVTRADER_NEMORL_CPU_SHIM"
_SHIM_BESIDE = Path(__file__).parents[3] / "shared/nrl_cpu/shim"
_BEFORE_THE_SHIM = Path(__file__).parent / "cpu_hook"
#: Workers whose own environment would be built by uv; a folder of that name is used as it is.
_WORKERS = ("nemo_rl.models.policy.workers.dtensor_policy_worker.DTensorPolicyWorker",)


@dataclass(frozen=True)
class Tree:
    """A checkout of NeMo-RL. folder: its root."""

    folder: Path

    @property
    def version(self) -> str:
        return version_of(self.folder)

    def __str__(self) -> str:
        return self.folder.name


def trees() -> list[Tree]:
    """The checkouts that the environment names."""
    return [Tree(Path(name)) for name in os.environ.get(SOURCE_VARIABLE, "").split(os.pathsep) if name]


def why_not() -> str:
    """What keeps the contract tests from running; empty when nothing does."""
    if not trees():
        return f"{SOURCE_VARIABLE} names no NeMo-RL checkout"
    if missing := [str(tree.folder) for tree in trees() if not (tree.folder / "examples/run_dpo.py").exists()]:
        return f"{SOURCE_VARIABLE}: no NeMo-RL checkout at {', '.join(missing)}"
    if not os.access(os.environ.get(PYTHON_VARIABLE, ""), os.X_OK):
        return f"{PYTHON_VARIABLE} names no interpreter"
    if not gpu_seen() and not (shim() / "sitecustomize.py").exists():
        return f"no GPU, and no stand-in for CUDA at {shim()} ({_SHIM_VARIABLE})"
    return ""


def shim() -> Path:
    return Path(os.environ.get(_SHIM_VARIABLE) or _SHIM_BESIDE)


def interpreter(tree: Tree, folder: Path, hooks: Path | None = None) -> Path:
    """A command that behaves as NeMo-RL's Python for this tree; on a CPU a wrapper that puts the stand-in on its path.

    hooks: a further folder for the front of the path.
    """
    python = Path(os.environ[PYTHON_VARIABLE])
    if gpu_seen():
        return python
    environments = folder / "venvs"
    environments.mkdir(parents=True, exist_ok=True)
    for worker in _WORKERS:
        if not (environments / worker).exists():
            (environments / worker).symlink_to(python.parents[1], target_is_directory=True)
    path = os.pathsep.join(str(p) for p in (hooks, _BEFORE_THE_SHIM, shim(), tree.folder) if p)
    settings = {
        "VIRTUAL_ENV": str(python.parents[1]),
        "NRL_CPU_SHIM": "1",
        "NRL_SHIM_RAY_GPUS": "1",
        "NEMO_RL_VENV_DIR": str(environments),
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_DEDUP_LOGS": "0",
        "OMP_NUM_THREADS": "1",
    }
    wrapper = folder / f"python-{tree}"
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in settings.items())
    wrapper.write_text(
        f"#!{shell()}\n{exports}\n"
        # The bridge may have put a folder of its own in front: it stays there.
        f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{shlex.quote(path)}\n'
        f'export PATH={shlex.quote(str(python.parent))}:"$PATH"\n'
        f'exec {shlex.quote(str(python))} "$@"\n'
    )
    wrapper.chmod(0o755)
    return wrapper


def shell() -> str:
    return "/bin/bash" if sys.platform == "linux" else "/bin/sh"
