"""Loaded by each Python below NeMo-RL at its start, because this folder is the first on PYTHONPATH.

Makes our package importable, and nothing that is installed beside it; puts the memory fall-back into NeMo-RL's NVML
module when that is imported; then loads the `sitecustomize` that this one hides, if there is one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (each Python start pays for an import)
_ROOT = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))  # noqa: PTH100, PTH118
_PACKAGE = "nvtrader_rl_dagster"
_NVML = "nemo_rl.utils.nvml"


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == _PACKAGE:
            return importlib.machinery.PathFinder.find_spec(fullname, [_ROOT])
        if fullname == _NVML:
            return _with_fall_back(importlib.machinery.PathFinder.find_spec(fullname, path))
        return None


def _with_fall_back(spec: importlib.machinery.ModuleSpec | None) -> importlib.machinery.ModuleSpec | None:
    if spec is None or spec.loader is None:
        return spec
    execute = spec.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        from nvtrader_rl_dagster.nemo_rl.driver.free_memory import install

        install(module)

    spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def _load_the_hidden_one() -> None:
    entries = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100
    behind = sys.path[entries.index(_HERE) + 1 :] if _HERE in entries else []
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.meta_path.insert(0, _Finder())
_load_the_hidden_one()
