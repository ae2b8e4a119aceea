"""A pip that writes what the bootstrap looks at: names, versions and origins of packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

TORCH = """
class _Ones:
    def __matmul__(self, other): return self
    def __eq__(self, other): return self
    def all(self): return CUDA
def ones(*shape, device): return _Ones()
class cuda:
    is_available = staticmethod(lambda: CUDA)
    get_device_name = staticmethod(lambda: "NVIDIA GB10")
    get_device_capability = staticmethod(lambda: (12, 1))
"""


def write(file: Path, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def torch(site: Path, version: str) -> None:
    cuda = "cu" in version.partition("+")[2]
    write(site / "torch/version.py", f"__version__ = {version!r}\ncuda = {'13.0' if cuda else None!r}\n")
    write(site / "torch/__init__.py", f"from torch.version import __version__\nCUDA = {cuda}\n{TORCH}")


def nemo_rl(site: Path, source: Path) -> None:
    head = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    uninstall(site)
    folder = site / "nemo_rl.dist-info"
    write(folder / "METADATA", f"Metadata-Version: 2.1\nName: nemo-rl\nVersion: 0.6.0+{head[:7]}\n")
    write(folder / "direct_url.json", json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
    (site / "nemo_rl").symlink_to(source / "nemo_rl")
    for name in ("ray", "transformers"):
        write(site / name / "__init__.py")
    torch(site, "2.10.0+cpu")


def uninstall(site: Path) -> None:
    shutil.rmtree(site / "nemo_rl.dist-info", ignore_errors=True)
    (site / "nemo_rl").unlink(missing_ok=True)


def main(site: Path, command: str, *arguments: str) -> None:
    if command == "uninstall":
        uninstall(site)
    elif "-e" in arguments:
        nemo_rl(site, Path(arguments[arguments.index("-e") + 1]))
    elif "uv" in arguments:
        shutil.copy(Path(__file__).with_name("uv"), site.parent / "bin/uv")
    else:
        (wanted,) = (a for a in arguments if a.startswith("torch=="))
        torch(site, wanted.removeprefix("torch=="))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
