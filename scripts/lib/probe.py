"""Answers the bootstrap's questions about the interpreter that runs it, in one line: a word, then text for people."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path


def package(source: str, commit: str) -> str:
    """`ok`, `absent`, `placeholder` (PyPI's empty nemo-rl) or `other`: what is installed as nemo-rl."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlparse

    try:
        found = distribution("nemo-rl")
    except PackageNotFoundError:
        return "absent nemo-rl is not installed"
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if not origin and found.version == "0.0.0":
        return "placeholder nemo-rl 0.0.0 is PyPI's empty placeholder"
    folder = unquote(urlparse(origin.get("url", "")).path)
    if Path(folder).resolve() != Path(source).resolve():
        return f"other nemo-rl {found.version} comes from {folder or 'a package index'}, not from {source}"
    if not origin.get("dir_info", {}).get("editable"):
        return f"other nemo-rl {found.version} is a copy without its sub-packages, not an editable install"
    _, _, short = found.version.partition("+")
    if short and not commit.startswith(short):
        return f"other nemo-rl {found.version} was installed at another commit"
    return f"ok nemo-rl {found.version} in {folder}"


def torch() -> str:
    """`cuda` or `cpu`, then the version; torch is not imported."""
    version = _torch_version()
    if version is None:
        return "absent torch is not installed"
    return f"{'cuda' if version['cuda'] else 'cpu'} {version['__version__']}"


def capability() -> str:
    """`ok` when torch computes on the GPU, else `fails`."""
    import torch

    if not torch.cuda.is_available():
        return f"fails torch {torch.__version__} sees no GPU"
    try:
        ones = torch.ones(64, 64, device="cuda")
        right = bool((ones @ ones == 64).all())
    except RuntimeError as error:
        return f"fails torch {torch.__version__}: {str(error).splitlines()[0]}"
    name = "{} of capability {}.{}".format(torch.cuda.get_device_name(), *torch.cuda.get_device_capability())
    return f"ok torch {torch.__version__} computes on {name}" if right else f"fails wrong product on {name}"


def modules(*names: str) -> str:
    """`ok` with torch's version, or `missing` and the names that this interpreter cannot find."""
    missing = [name for name in names if not _is_there(name)]
    if missing:
        return f"missing {', '.join(missing)}"
    version = _torch_version()
    return f"ok torch {version['__version__']}" if version else "ok"


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def _torch_version() -> dict[str, str] | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    version: dict[str, str] = {}
    exec((Path(spec.submodule_search_locations[0]) / "version.py").read_text(encoding="utf-8"), version)
    return version


QUESTIONS: dict[str, Callable[..., str]] = {
    "package": package,
    "torch": torch,
    "capability": capability,
    "modules": modules,
}

if __name__ == "__main__":
    print(QUESTIONS[sys.argv[1]](*sys.argv[2:]))
