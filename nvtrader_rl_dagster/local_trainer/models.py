"""Base models: two built in, or a local Hugging Face folder. No hub is contacted."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.local_trainer.config import ConfigError

BUILTIN = ("builtin:tiny", "builtin:smollm2")


def cache_folder() -> Path:
    """Where built models live: NVTRADER_RL_CACHE, else the XDG cache folder's ``nvtrader-rl/models``."""
    own = os.environ.get("NVTRADER_RL_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nvtrader-rl" / "models"


def resolve_model(name: str) -> Path:
    """The Hugging Face folder of a model name, built first when it is a built-in one that is not in the cache.

    Raises ConfigError when the name is neither built in nor a folder with a config.json.
    """
    if name == "builtin:tiny":
        from nvtrader_rl_dagster.local_trainer.tiny_model import build_tiny, tiny_key

        return _cached(f"tiny-{tiny_key()}", build_tiny)
    if name == "builtin:smollm2":
        from nvtrader_rl_dagster.local_trainer.smollm2 import build_smollm2, find_gguf

        gguf = find_gguf()
        return _cached(f"smollm2-{sha256(gguf)[:16]}", lambda folder: build_smollm2(gguf, folder))
    path = Path(name)
    if name.startswith("builtin:") or not (path / "config.json").is_file():
        raise ConfigError(
            f"model {name!r} is neither one of {', '.join(BUILTIN)} nor a local folder with a config.json. "
            "No hub is contacted (HF_HUB_OFFLINE): download the model yourself and give its folder."
        )
    return path


def load_model(name: str) -> Any:
    """The causal language model of ``name`` in float32, dropout off, with scaled-dot-product attention."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        resolve_model(name), dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    return model.eval()


def describe_model(name: str) -> dict[str, Any]:
    """Name, folder, number of parameters and the SHA-256 of the weights; builds the model when needed."""
    from safetensors import safe_open

    path = resolve_model(name)
    weights = sorted(path.glob("*.safetensors"))
    parameters = 0
    for file in weights:
        with safe_open(file, framework="numpy") as tensors:
            for key in tensors.keys():  # noqa: SIM118 (safe_open is not iterable)
                size = 1
                for length in tensors.get_slice(key).get_shape():
                    size *= length
                parameters += size
    return {"name": name, "path": str(path), "parameters": parameters, "sha256": sha256(*weights)}


def check_model(name: str) -> dict[str, Any]:
    """Load model and tokenizer as a user would, predict on a short text, and say the mean loss (nats per token).

    Raises ConfigError when a prediction is no finite number, and whatever loading raises.
    """
    import math

    import torch
    from transformers import AutoTokenizer

    model = load_model(name)
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(name), local_files_only=True)
    ids = tokenizer("The fund fell 0.4 % and the benchmark 0.3 %.", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        loss = float(model(input_ids=ids, labels=ids).loss)
    if not math.isfinite(loss):
        raise ConfigError(f"model {name!r}: its predictions are not finite numbers.")
    return {"name": name, "loss": loss}


def sha256(*paths: Path) -> str:
    """Hex digest of the files' bytes, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _cached(key: str, build: Callable[[Path], None]) -> Path:
    """``<cache>/<key>``, built in a private folder and renamed: of two processes, the first one's copy stays."""
    folder = cache_folder() / key
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=folder.parent))
    try:
        build(temporary)
        temporary.chmod(0o755)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
