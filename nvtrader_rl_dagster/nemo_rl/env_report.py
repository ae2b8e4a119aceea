"""Whether NeMo-RL could train on this machine now: what is there, what is missing, and the command that fixes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.backends import Backend, BackendError, choose_trainer, nemo_rl_paths
from nvtrader_rl_dagster.nemo_rl.env_probe import Interpreter, Torch, look_into_interpreter, look_into_torch
from nvtrader_rl_dagster.nemo_rl.environment import nemo_rl_environment
from nvtrader_rl_dagster.nemo_rl.gpus import Gpu, GpuError, gpus
from nvtrader_rl_dagster.nemo_rl.source_tree import SourceTree, read_source_tree
from nvtrader_rl_dagster.nemo_rl.worker_venvs import WorkerVenv, worker_venvs

BOOTSTRAP = "bash scripts/bootstrap_nemo_rl.sh"
_PYTHON = "3.13"
_ALGO = "dpo"
_MEMORY = Path("/proc/meminfo")
#: What torch said, by interpreter, its version and the GPU: importing it takes seconds.
_asked: dict[tuple[Any, ...], Torch] = {}


@dataclass(frozen=True)
class Missing:
    """what: the sentence for people. fix: a command, or what to do where no command helps.

    step: of the bootstrap, empty when it has none for this. blocks: no training starts without it.
    """

    what: str
    fix: str
    step: str = ""
    blocks: bool = True


@dataclass(frozen=True)
class Memory:
    """Bytes. unified: GPU and CPU share it, so that `nvidia-smi` reports none."""

    total: int
    available: int
    unified: bool


@dataclass(frozen=True)
class EnvReport:
    """What `GET /api/nemo-rl/env` and `nvtrader-rl doctor --nemo-rl` show.

    bootstrapped: source tree, interpreter and packages are there. ready: NeMo-RL would train on the GPU now.
    missing: in the order in which the bootstrap would do it.
    backend: what the next training takes; None when it cannot start. why: for people. interpreter, torch: None when
    they could not be asked; problems says why. memory: what a training has, None when it is unknown.
    """

    bootstrapped: bool
    ready: bool
    backend: str | None
    why: str
    source: SourceTree
    python: str
    interpreter: Interpreter | None
    torch: Torch | None
    gpus: list[Gpu]
    memory: Memory | None
    worker_venvs: list[WorkerVenv]
    missing: list[Missing]
    problems: list[str]

    def to_json(self) -> dict[str, Any]:
        """For orjson: paths are text, and what follows from other fields is written out."""
        report = asdict(self)
        report["source"]["path"] = str(self.source.path)
        report["worker_venvs"] = [{"name": v.name, "state": v.state.value} for v in self.worker_venvs]
        if self.interpreter is not None:
            report["interpreter"]["placeholder"] = self.interpreter.placeholder
        return report


def env_report(
    backend: Backend = Backend.AUTO, python: str = "", source: str = "", *, ask_torch: bool = True
) -> EnvReport:
    """Look at everything; changes nothing, and takes no longer than its time limits.

    backend: the one that is configured. Empty paths mean the environment variables, then `third_party/nemo-rl`.
    ask_torch: import torch in NeMo-RL's interpreter, which takes seconds; its answer is kept while nothing changes.
    """
    path, interpreter_path = nemo_rl_paths(python, source)
    tree = read_source_tree(path)
    problems: list[str] = []
    environment = _environment(interpreter_path, path, problems)
    found = _gpus(problems)
    interpreter = torch = None
    if os.access(interpreter_path, os.X_OK) and not Path(interpreter_path).is_dir():
        interpreter = _said(lambda: look_into_interpreter(interpreter_path, environment), problems)
    if interpreter is not None and "torch" not in interpreter.missing and ask_torch:
        key = (interpreter_path, interpreter.versions["torch"], tuple((g.name, g.driver) for g in found))
        torch = _asked.get(key) or _said(lambda: look_into_torch(interpreter_path, environment), problems)
        if torch is not None:
            _asked[key] = torch
    venvs = worker_venvs(Path((interpreter and interpreter.venv_dir) or environment["NEMO_RL_VENV_DIR"]))
    missing = [*_missing_source(tree, interpreter), *_missing_packages(interpreter_path, interpreter, problems)]
    bootstrapped = not any(item.blocks for item in missing)
    missing += [*_missing_gpu(found, torch), *_broken_venvs(venvs)]
    name, why = _backend(backend, python, source)
    return EnvReport(
        bootstrapped=bootstrapped,
        ready=not problems and not any(item.blocks for item in missing),
        backend=name,
        why=why,
        source=tree,
        python=interpreter_path,
        interpreter=interpreter,
        torch=torch,
        gpus=found,
        memory=_memory(found),
        worker_venvs=venvs,
        missing=missing,
        problems=problems,
    )


def placeholder_installed() -> bool:
    """Whether PyPI's empty nemo-rl 0.0.0 is installed beside us."""
    try:
        found = distribution("nemo-rl")
    except PackageNotFoundError:
        return False
    return found.version == "0.0.0" and found.read_text("direct_url.json") is None


def _environment(python: str, tree: Path, problems: list[str]) -> dict[str, str]:
    """What a training would get."""
    try:
        return nemo_rl_environment(os.environ, python, tree)
    except ValueError as error:
        problems.append(str(error))
        return {**os.environ, "NEMO_RL_VENV_DIR": os.environ.get("NEMO_RL_VENV_DIR") or str(tree / "venvs")}


def _gpus(problems: list[str]) -> list[Gpu]:
    try:
        return gpus()
    except GpuError as error:
        problems.append(f"nvidia-smi: {error}; install or restart the NVIDIA driver, then run nvidia-smi")
        return []


def _said(ask: Callable[[], Any], problems: list[str]) -> Any:
    try:
        return ask()
    except ValueError as error:
        problems.append(str(error))
        return None


def _step(what: str, step: str, blocks: bool = True) -> Missing:
    return Missing(what, f"{BOOTSTRAP} --only {step}", step, blocks)


def _missing_source(tree: SourceTree, interpreter: Interpreter | None) -> list[Missing]:
    if tree.release is None:
        return [_step(tree.problem, "source")]
    script = tree.path / "examples" / ALGOS[_ALGO].release(tree.release).script
    if not script.is_file():
        return [_step(f"{script} is not there", "source")]
    absent = [path for path, there in tree.submodules.items() if not there]
    if not absent:
        return []
    # The scripts of 0.6.0 import megatron.core from its submodule, unless it is installed.
    installed = interpreter is not None and interpreter.versions["megatron-core"] is not None
    needed = tree.release == "0.6.0" and not installed and any("Megatron-LM" in path for path in absent)
    return [_step(f"submodules without files: {', '.join(absent)}", "submodules", blocks=needed)]


def _missing_packages(python: str, interpreter: Interpreter | None, problems: list[str]) -> list[Missing]:
    if interpreter is None:
        what = problems[-1] if os.access(python, os.X_OK) and problems else f"{python} is no interpreter"
        return [_step(what, "environment")]
    found = []
    if not interpreter.python.startswith(_PYTHON):
        what = f"{python} is Python {interpreter.python}; NeMo-RL asks for {_PYTHON}, and may hang after an error"
        found.append(_step(what, "environment", blocks=False))
    if interpreter.placeholder:
        found.append(_step("nemo-rl 0.0.0 is PyPI's empty placeholder, not NeMo-RL", "placeholder"))
    if lacking := [name for name in interpreter.missing if name != "torch"]:
        found.append(_step(f"{python} lacks {', '.join(lacking)}", "package"))
    if "torch" in interpreter.missing:
        found.append(_step(f"{python} lacks torch", "torch"))
    return found


def _missing_gpu(found: list[Gpu], torch: Torch | None) -> list[Missing]:
    if not found:
        return [Missing("no NVIDIA GPU is seen", "run nvidia-smi; in a container, start it with the GPU")]
    if torch is None:
        return []
    if torch.cuda is None:
        return [_step(f"torch {torch.version} is a CPU build", "torch")]
    if not torch.sees_gpu:
        what = f"torch {torch.version} (CUDA {torch.cuda}) sees no GPU; the driver is {found[0].driver}"
        return [Missing(what, "update the driver to one for this CUDA version; look at CUDA_VISIBLE_DEVICES")]
    if not torch.computes:
        what = f"torch {torch.version} does not compute on {found[0].name} of capability {torch.capability}"
        return [_step(f"{what}: {torch.problem or 'a wrong product'}", "torch,capability")]
    return []


def _broken_venvs(venvs: list[WorkerVenv]) -> list[Missing]:
    broken = [f"{venv.name} ({venv.state.value})" for venv in venvs if venv.broken]
    what = f"worker environments that were not built to the end: {', '.join(broken)}"
    return [_step(what, "venvs", blocks=False)] if broken else []


def _backend(backend: Backend, python: str, source: str) -> tuple[str | None, str]:
    try:
        trainer = choose_trainer(backend, _ALGO, python, source)
    except BackendError as error:
        return None, str(error)
    return trainer.name, trainer.why


def _memory(found: list[Gpu]) -> Memory | None:
    """Of the first GPU; the machine's where they share it, or where there is none."""
    if found and found[0].memory is not None:
        return Memory(found[0].memory, found[0].memory - (found[0].used or 0), unified=False)
    try:
        kibibytes = _meminfo(_MEMORY.read_text(encoding="ascii"))
        return Memory(kibibytes["MemTotal"] * 1024, kibibytes["MemAvailable"] * 1024, unified=bool(found))
    except (OSError, KeyError, ValueError):
        return None


def _meminfo(text: str) -> Mapping[str, int]:
    fields = [line.split() for line in text.splitlines()]
    return {parts[0].rstrip(":"): int(parts[1]) for parts in fields if len(parts) > 1 and parts[1].isdecimal()}
