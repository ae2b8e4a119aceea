"""A machine with NeMo-RL for tests: a source tree, a bare interpreter with tiny packages, and an `nvidia-smi`."""

from __future__ import annotations

import shutil
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGES = {
    "torch": "2.12.0+cu130",
    "ray": "2.54.0",
    "transformers": "5.3.0",
    "datasets": "4.4.1",
    "omegaconf": "2.3.0",
    "hydra": "1.3.2",
    "nemo_rl": "0.6.0",
}
#: What is asked of torch, answered as on a GB10.
_TORCH = """
import os
open(os.path.join(os.path.dirname(__file__), "imported"), "a").write("x")
__version__ = "2.12.0+cu130"
class version:
    cuda = "13.0"
class cuda:
    is_available = staticmethod(lambda: True)
    get_arch_list = staticmethod(lambda: ["sm_80", "sm_120"])
    get_device_capability = staticmethod(lambda index: (12, 1))
class ones:
    def __init__(self, *shape, device): pass
    def __matmul__(self, other): return self
    def __eq__(self, other): return self
    def all(self): return True
"""
_PACKAGE_INFO = "MAJOR = 0\nMINOR = {minor}\nPATCH = 0\nPRE_RELEASE = ''\n"


@dataclass(frozen=True)
class NemoRlHost:
    """folder: of everything. The environment names tree and interpreter; `nvidia-smi` is on the path."""

    folder: Path

    @property
    def tree(self) -> Path:
        return self.folder / "nemo-rl"

    @property
    def python(self) -> Path:
        return self.folder / "env" / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = (self.folder / "env" / "lib").glob("python3*/site-packages")
        return found

    def install(self, name: str, version: str, code: str = "", *, address: bool = True) -> None:
        """A package, and what `pip` would have written about it."""
        (self.packages / name).mkdir(exist_ok=True)
        (self.packages / name / "__init__.py").write_text(code)
        info = self.packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name.replace('_', '-')}\nVersion: {version}\n")
        if address:
            (info / "direct_url.json").write_text('{"url": "file:///nemo-rl"}')

    def remove(self, name: str) -> None:
        for folder in self.packages.glob(f"{name}*"):
            shutil.rmtree(folder)

    def replace(self, name: str, version: str, *, address: bool = True) -> None:
        self.remove(name)
        self.install(name, version, address=address)

    def script(self, name: str, body: str) -> Path:
        """An executable in the folder that is first on the path."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def release(self, minor: int) -> None:
        (self.tree / "nemo_rl" / "package_info.py").write_text(_PACKAGE_INFO.format(minor=minor))


def nemo_rl_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> NemoRlHost:
    """A GB10 on which nothing is missing, but for the Python version of these tests."""
    host = NemoRlHost(folder)
    for path in ("nemo_rl", "examples", "3rdparty/Gym"):
        (host.tree / path).mkdir(parents=True)
    host.release(6)
    (host.tree / "examples" / "run_dpo.py").touch()
    (host.tree / ".gitmodules").write_text('[submodule "Gym"]\n\tpath = 3rdparty/Gym\n\turl = x\n')
    (host.tree / "3rdparty/Gym" / "pyproject.toml").touch()
    venv.create(folder / "env", with_pip=False, symlinks=True)
    for name, version in PACKAGES.items():
        host.install(name, version, _TORCH if name == "torch" else "")
    host.script("nvidia-smi", 'echo "NVIDIA GB10, 12.1, 580.95.05, [N/A], [N/A]"')
    for variable in ("NVTRADER_NEMORL_PYTHONPATH", "NVTRADER_NEMORL_PASS_ENV", "NEMO_RL_VENV_DIR", "PYTHONPATH"):
        monkeypatch.delenv(variable, raising=False)
    for tool in ("git", "sleep"):  # nothing else: this machine may have a GPU
        (folder / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setenv("NVTRADER_NEMORL_SRC", str(host.tree))
    monkeypatch.setenv("NVTRADER_NEMORL_PYTHON", str(host.python))
    return host
