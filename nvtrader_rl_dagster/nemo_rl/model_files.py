"""A model on disk, looked at without loading it: its parameters, its shape, and whether its files are complete."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

FLOAT32 = 4
BUILTIN = {"builtin:tiny": 2_016_960, "builtin:smollm2": 134_515_008}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "tekken.json", "vocab.txt")


@dataclass(frozen=True)
class Shape:
    """What a model's `config.json` says about its size."""

    layers: int
    hidden: int
    vocabulary: int


def count_parameters(name: str) -> int | None:
    """Parameters of a built-in model, of a local folder, or of a model in the Hugging Face cache; None when unknown."""
    if name in BUILTIN:
        return BUILTIN[name]
    folder = model_folder(name)
    files = sorted(folder.glob("*.safetensors")) if folder else []
    try:
        return sum(map(_parameters_in, files)) if files else None
    except ValueError:
        return None


def model_folder(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """A local folder, or the newest snapshot of a hub model in the cache; nothing is downloaded."""
    local = Path(name).expanduser()
    if local.is_dir():
        return local
    hub = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    home = Path(environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    root = Path(hub) if hub else home / "hub"
    snapshots = (root / f"models--{name.replace('/', '--')}" / "snapshots").glob("*")
    return max(snapshots, key=lambda folder: folder.stat().st_mtime, default=None)


def shape_of(folder: Path) -> Shape | None:
    """Layers, width and vocabulary; None when `config.json` does not say."""
    config = read_config_json(folder)
    text = config.get("text_config", config)
    values = [text.get(key) for key in ("num_hidden_layers", "hidden_size", "vocab_size")]
    return Shape(*values) if all(isinstance(value, int) for value in values) else None


def read_config_json(folder: Path) -> dict[str, Any]:
    """The model's `config.json`; empty when it is missing or broken."""
    try:
        config = orjson.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def missing_weights(folder: Path) -> str:
    """What is wrong with the weight files of a folder; empty when they are complete."""
    for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        if (folder / index).is_file():
            try:
                named = set(orjson.loads((folder / index).read_bytes())["weight_map"].values())
            except (ValueError, KeyError, TypeError, AttributeError):
                return f"{index} is broken"
            absent = sorted(name for name in named if not (folder / name).is_file())
            if absent:
                return f"{len(absent)} of {len(named)} weight files are missing, for example {absent[0]}"
            break
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        try:
            _check_length(file)
        except ValueError as error:
            return str(error)
    if not files and not any(folder.glob("*.bin")):
        return "there is no weight file (*.safetensors or *.bin)"
    return ""


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _TOKENIZER_FILES)


def has_chat_template(folder: Path) -> bool:
    """In `tokenizer_config.json` or in a file of its own, as transformers looks for it."""
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    if (folder / "additional_chat_templates").is_dir():
        return True
    try:
        return bool(orjson.loads((folder / "tokenizer_config.json").read_bytes()).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return False


def _parameters_in(file: Path) -> int:
    header, _ = _header(file)
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def _check_length(file: Path) -> None:
    """Raises `ValueError` when a file is shorter than its header says: a broken download."""
    header, start = _header(file)
    end = max((tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"), default=0)
    if file.stat().st_size < start + end:
        raise ValueError(f"{file.name} is cut off: {file.stat().st_size:,} of {start + end:,} bytes")


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """Header and where the tensors start: 8 bytes little-endian length, then JSON (the safetensors format)."""
    with file.open("rb") as stream:
        first = stream.read(8)
        if len(first) < 8:
            raise ValueError(f"{file.name} is cut off")
        (length,) = struct.unpack("<Q", first)
        if length > file.stat().st_size:
            raise ValueError(f"{file.name} is cut off, or no safetensors file")
        try:
            header: dict[str, Any] = orjson.loads(stream.read(length))
        except orjson.JSONDecodeError as error:
            raise ValueError(f"{file.name} is no safetensors file") from error
    return header, 8 + length
