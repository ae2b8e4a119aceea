"""Stands before the stand-in for CUDA, which wraps torch's factory functions: lets torch note the plain ones first.

Else `torch.device("meta")` does not reach them, and transformers leaves the rotary frequencies of every model that it
loads uninitialized.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


class _Finder:
    def find_spec(self, fullname, path=None, target=None):
        if fullname == "nemo_rl":
            from torch.utils._device import _device_constructors

            _device_constructors()
        return None


def _load_the_hidden_one():
    entries = [Path(entry).resolve() for entry in sys.path]
    behind = sys.path[entries.index(_HERE) + 1 :] if _HERE in entries else []
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_load_the_hidden_one()
# In front of the finder with which the stand-in waits for the same import.
sys.meta_path.insert(0, _Finder())
