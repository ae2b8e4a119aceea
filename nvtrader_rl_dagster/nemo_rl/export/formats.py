"""Which format a checkpoint's weights are in. NeMo-RL writes it nowhere; the files tell."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

_ITERATION = re.compile(r"iter_[0-9]+")
_TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json")


class WeightFormat(str, Enum):
    """Formats of `policy/weights`. Only `huggingface` loads as it is.

    consolidated: by the v2 worker, which puts no tokenizer beside the weights. dcp: torch.distributed.checkpoint, by
    the v1 worker and by v2 with `torch_save`. safetensors: one file per rank, by v2. lora: an adapter, by v2. megatron
    and megatron_lora: `iter_<n>`, by the Megatron worker.
    """

    HUGGINGFACE = "huggingface"
    CONSOLIDATED = "consolidated"
    DCP = "dcp"
    SAFETENSORS = "safetensors"
    LORA = "lora"
    MEGATRON = "megatron"
    MEGATRON_LORA = "megatron_lora"
    UNKNOWN = "unknown"

    @property
    def is_megatron(self) -> bool:
        return self in (WeightFormat.MEGATRON, WeightFormat.MEGATRON_LORA)


def recognise(weights: Path) -> WeightFormat:
    """The format of a folder `policy/weights`; `unknown` when it is none of NeMo-RL's."""
    model = weights / "model"
    iteration = megatron_iteration(weights)
    if iteration is not None:
        return WeightFormat.MEGATRON_LORA if _has_adapter(iteration) else WeightFormat.MEGATRON
    if (model / "consolidated" / "config.json").is_file():
        return WeightFormat.HUGGINGFACE if has_tokenizer(model / "consolidated") else WeightFormat.CONSOLIDATED
    if (model / "adapter_model.safetensors").is_file():
        return WeightFormat.LORA
    if (weights / ".metadata").is_file() or (model / ".metadata").is_file():
        return WeightFormat.DCP
    if next(model.glob("*.safetensors"), None) is not None:
        return WeightFormat.SAFETENSORS
    return WeightFormat.UNKNOWN


def has_tokenizer(folder: Path) -> bool:
    """Whether a Hugging Face folder holds a tokenizer."""
    return any((folder / name).is_file() for name in _TOKENIZER_FILES)


def megatron_iteration(weights: Path) -> Path | None:
    """The newest `iter_<n>` of a Megatron checkpoint, None when there is none."""
    if not weights.is_dir():
        return None
    found = [path for path in weights.iterdir() if path.is_dir() and _ITERATION.fullmatch(path.name)]
    return max(found, key=lambda path: int(path.name[5:]), default=None)


def _has_adapter(iteration: Path) -> bool:
    """Megatron notes the run's whole configuration; a LoRA run has a section `peft`."""
    import yaml

    file = iteration / "run_config.yaml"
    # Its other sections hold tags that only Megatron's loader knows.
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        return False
    peft = next((value for key, value in node.value if key.value == "peft"), None)
    return peft is not None and not (isinstance(peft, yaml.ScalarNode) and peft.tag.endswith(":null"))
