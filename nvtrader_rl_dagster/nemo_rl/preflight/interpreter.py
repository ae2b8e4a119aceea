"""What NeMo-RL's own interpreter has: its version and packages. Nothing of them is imported."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

#: Packages without which no run script starts.
NEEDED = ("torch", "ray", "transformers", "datasets")
_TIMEOUT_SECONDS = 30
_PROBE = """
import importlib.metadata, importlib.util, json, sys
if sys.path[0] == "":
    del sys.path[0]  # a script's own folder stands there, not the working directory
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
names = sys.argv[1:]
print(json.dumps({
    "python": list(sys.version_info[:3]),
    "packages": {name: version(name.split(".")[0]) for name in names if found(name)},
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """packages: name to version, which is empty for a package that is only a folder on the path."""

    python: tuple[int, ...]
    packages: dict[str, str]

    def version(self, package: str) -> tuple[int, ...]:
        """A package's version; empty when it is unknown."""
        parts = self.packages.get(package, "").split(".")
        return tuple(int(part) for part in parts[:2]) if all(part.isdecimal() for part in parts[:2]) else ()


def look_into(python: str, cwd: Path, environment: Mapping[str, str]) -> Interpreter:
    """Ask an interpreter. Raises `ValueError` with what it said when it does not answer."""
    names = (*NEEDED, "nemo_rl", "megatron.core", "wandb")
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, *names],
            cwd=cwd,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
        said = orjson.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        raise ValueError(f"{python}: {lines[-1] if lines else f'exit code {error.returncode}'}") from error
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        raise ValueError(f"{python}: {error}") from error
    return Interpreter(tuple(said["python"]), said["packages"])
