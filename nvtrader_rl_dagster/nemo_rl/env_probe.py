"""Asks NeMo-RL's own interpreter what it has. Only there is torch imported, and only in a process that can be ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

#: Distributions whose versions are shown.
SHOWN = ("nemo-rl", "torch", "ray", "transformers", "datasets", "vllm", "megatron-core", "nemo-automodel")
#: Modules without which no script starts.
NEEDED = ("torch", "ray", "transformers", "datasets", "omegaconf", "hydra", "nemo_rl")
_INTERPRETER_SECONDS, _TORCH_SECONDS = 30.0, 120.0
#: With `-c` the working directory is on the path, which it is not for NeMo-RL's scripts.
_NEUTRAL = "/"

_INTERPRETER = """
import importlib.metadata as metadata, importlib.util, json, os, sys
shown, needed = json.loads(sys.argv[1])
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
try:
    nemo_rl = metadata.distribution("nemo-rl")
    installed_from = json.loads(nemo_rl.read_text("direct_url.json") or "{}").get("url")
except metadata.PackageNotFoundError:
    installed_from = None
print(json.dumps({
    "python": ".".join(map(str, sys.version_info[:3])),
    "versions": {name: version(name) for name in shown},
    "missing": [name for name in needed if not found(name)],
    "megatron_core": found("megatron.core"),
    "installed_from": installed_from,
    "venv_dir": os.environ.get("NEMO_RL_VENV_DIR"),
}))
"""
_TORCH = """
import json, torch
said = {"version": str(torch.__version__), "cuda": torch.version.cuda, "sees_gpu": torch.cuda.is_available(),
        "kernels": [], "capability": None, "computes": None, "problem": ""}
if said["sees_gpu"]:
    said["kernels"] = torch.cuda.get_arch_list()
    said["capability"] = "%d.%d" % torch.cuda.get_device_capability(0)
    try:
        ones = torch.ones(64, 64, device="cuda")
        said["computes"] = bool((ones @ ones == 64).all())
    except RuntimeError as error:
        said["computes"], said["problem"] = False, str(error).splitlines()[0]
print(json.dumps(said))
"""


@dataclass(frozen=True)
class Interpreter:
    """versions: of what is installed, None for what is not. missing: modules that cannot be imported.

    megatron_core: whether megatron.core can be imported, installed or from a folder on the path.
    installed_from: the address that nemo-rl was installed from. venv_dir: where it would build worker environments.
    """

    python: str
    versions: dict[str, str | None]
    missing: list[str]
    megatron_core: bool
    installed_from: str | None
    venv_dir: str | None

    @property
    def placeholder(self) -> bool:
        """Whether PyPI's empty nemo-rl 0.0.0 is installed in place of NeMo-RL."""
        return self.versions.get("nemo-rl") == "0.0.0" and self.installed_from is None

    def release(self, package: str) -> tuple[int, ...]:
        """Major and minor version of a package, or of `python`; empty when it is unknown."""
        version = self.python if package == "python" else self.versions.get(package) or ""
        parts = version.split(".")[:2]
        return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


@dataclass(frozen=True)
class Torch:
    """cuda: the version that it was built for, None for a CPU build. kernels: architectures that it was built for.

    capability: of the first GPU that it sees. computes: whether a product on that GPU was right; None without a GPU.
    """

    version: str
    cuda: str | None
    sees_gpu: bool
    kernels: list[str] = field(default_factory=list)
    capability: str | None = None
    computes: bool | None = None
    problem: str = ""


def look_into_interpreter(python: str, environment: Mapping[str, str]) -> Interpreter:
    """Versions and packages; nothing of them is imported. Raises `ValueError` with what the interpreter said."""
    asked = orjson.dumps([SHOWN, NEEDED]).decode()
    return Interpreter(**_ask([python, "-c", _INTERPRETER, asked], environment, _INTERPRETER_SECONDS))


def look_into_torch(python: str, environment: Mapping[str, str]) -> Torch:
    """What torch sees, and whether it computes there. Raises `ValueError` with what the interpreter said."""
    return Torch(**_ask([python, "-c", _TORCH], environment, _TORCH_SECONDS))


def _ask(command: list[str], environment: Mapping[str, str], seconds: float) -> dict[str, Any]:
    try:
        process = subprocess.Popen(
            command,
            cwd=_NEUTRAL,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ValueError(f"{command[0]}: {error.strerror or error}") from error
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as expired:
        # A wrapper may have started the interpreter as a child, which keeps the pipes open.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise ValueError(f"{command[0]} did not answer within {seconds:g} s") from expired
    lines = (out if process.returncode == 0 else err or out).strip().splitlines()
    if process.returncode != 0:
        raise ValueError(f"{command[0]}: {lines[-1] if lines else f'exit code {process.returncode}'}")
    try:
        said: dict[str, Any] = orjson.loads(lines[-1])
    except (IndexError, orjson.JSONDecodeError) as error:
        raise ValueError(f"{command[0]} is no Python: it answered {lines[-1] if lines else 'nothing'!r}") from error
    return said
