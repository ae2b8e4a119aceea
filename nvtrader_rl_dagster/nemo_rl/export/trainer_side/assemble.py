"""Makes a Hugging Face folder of one checkpoint and proves that it loads. Runs in the trainer's interpreter.

    python assemble.py FORMAT CHECKPOINT STAGING [LOADABLE]

FORMAT: one of `export/formats.py`. STAGING: an empty folder, which gets `out` and `report.json`. LOADABLE: the Hugging
Face folder of a checkpoint that has one. The working directory is NeMo-RL's tree, whose converters do their part.
NeMo-RL's environment does not have our package, so this file imports nothing of it.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import runpy
import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

#: Tensors that are in memory at once while the export is compared with its source.
_AT_ONCE = 32
_TEXT = "The fund fell 0.4 % and the benchmark 0.3 %."


class ExportProblemError(Exception):
    """The checkpoint cannot become a Hugging Face folder, or the folder that it became is not it."""


class Source:
    """What the trainer saved, and the settings that it was trained with."""

    def __init__(self, kind: str, checkpoint: Path, staging: Path, loadable: Path | None) -> None:
        self.kind = kind
        self.weights = checkpoint / "policy" / "weights"
        self.tokenizer = checkpoint / "policy" / "tokenizer"
        self.staging = staging
        self.loadable = loadable
        self.config: dict[str, Any] = yaml.safe_load((checkpoint / "config.yaml").read_text(encoding="utf-8"))
        self.policy: dict[str, Any] = self.config["policy"]
        self.base: str = self.policy["model_name"]
        self.is_reward_model = bool((self.policy.get("reward_model_cfg") or {}).get("enabled"))
        if not self.tokenizer.is_dir():
            raise ExportProblemError(f"{self.tokenizer} is not there; the checkpoint is not whole")

    @property
    def model_class(self) -> Any:
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

        return AutoModelForSequenceClassification if self.is_reward_model else AutoModelForCausalLM

    @property
    def sharded(self) -> Path:
        """The folder of the shards: v1 saves into `weights`, v2 one level below."""
        return self.weights if (self.weights / ".metadata").is_file() else self.weights / "model"

    def skeleton(self) -> Path:
        """Configuration and tokenizer as trained, without weights: what the converters take for the base model.

        NeMo-RL trains with `hf_config_overrides`, and a reward model with one label, and writes neither into the
        configuration of the base model; its converters read that one, and 0.6.0 also the base model's tokenizer.
        """
        from transformers import AutoConfig

        folder = self.staging / "skeleton"
        overrides = self.policy.get("hf_config_overrides") or {}
        config = AutoConfig.from_pretrained(self.base, trust_remote_code=True, **overrides)
        if self.is_reward_model:
            config.num_labels = 1
        shutil.copytree(self.tokenizer, folder)
        config.save_pretrained(folder)
        if Path(self.base).is_dir():
            for code in Path(self.base).glob("*.py"):
                shutil.copy(code, folder)
        return folder

    def run_converter(self, script: str, *arguments: str, **changes: Any) -> Path:
        """One of NeMo-RL's own converters, in this process. changes: of `policy` in the configuration that it reads."""
        out, config = self.staging / "converted", self.staging / "config.yaml"
        config.write_text(yaml.safe_dump({**self.config, "policy": {**self.policy, **changes}}), encoding="utf-8")
        if script != "convert_lora_to_hf.py":  # it takes everything from the command line
            arguments = ("--config", str(config), *arguments)
        path = Path("examples/converters") / script
        if not path.is_file():
            raise ExportProblemError(f"{path.resolve()} is not there; point NVTRADER_NEMORL_SRC at a NeMo-RL checkout")
        sys.argv = [str(path), *arguments, "--hf-ckpt-path", str(out)]
        runpy.run_path(str(path), run_name="__main__")
        return out

    def from_dcp(self) -> Path:
        skeleton = str(self.skeleton())
        return self.run_converter(
            "convert_dcp_to_hf.py",
            "--dcp-ckpt-path",
            str(self.weights),
            model_name=skeleton,
            tokenizer={**(self.policy.get("tokenizer") or {}), "name": skeleton},
            hf_overrides=None,
        )

    def from_megatron(self) -> Path:
        iteration = _newest_iteration(self.weights)
        if self.kind == "megatron_lora":
            pretrained = _pretrained(iteration)
            paths = ("--base-ckpt", pretrained, "--adapter-ckpt", str(iteration), "--hf-model-name", self.base)
            return self.run_converter("convert_lora_to_hf.py", *paths)
        return self.run_converter(
            "convert_megatron_to_hf.py",
            "--megatron-ckpt-path",
            str(iteration),
            tokenizer={**(self.policy.get("tokenizer") or {}), "name": str(self.skeleton())},
            hf_overrides=self.policy.get("hf_config_overrides") or {},
        )

    def from_shards(self) -> Path:
        from safetensors.torch import save_file

        folder = self.skeleton()
        save_file(dict(_stored(self.sharded)), folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def model(self) -> tuple[Any, Iterable[tuple[str, Any]]]:
        """The trained model, and the tensors that its export must hold."""
        import torch

        if self.kind == "lora":
            if self.is_reward_model:
                raise ExportProblemError(
                    "a LoRA adapter of a reward model lacks the trained score head: NeMo-RL saves the adapter only"
                )
            model = load(self.model_class, Path(self.base), torch.float32)
            return model, merge_adapter(model, self.sharded).items()
        if self.kind in ("megatron", "megatron_lora"):
            folder = self.from_megatron()
            tensors: Iterable[tuple[str, Any]] = _in_safetensors(folder)
        elif self.kind == "dcp":
            folder, tensors = self.from_dcp(), _stored(self.sharded)
        elif self.kind == "safetensors":
            folder, tensors = self.from_shards(), _stored(self.sharded)
        elif self.loadable is not None:
            folder, tensors = self.loadable, _in_safetensors(self.loadable)
        else:
            raise ExportProblemError(f"{self.weights} is in none of NeMo-RL's formats ({self.kind})")
        return load(self.model_class, folder, _stored_type(folder)), tensors


def load(model_class: Any, folder: Path, dtype: Any) -> Any:
    """The model of a folder; every weight of it must be there, and nothing else."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model, info = model_class.from_pretrained(folder, dtype=dtype, output_loading_info=True, trust_remote_code=True)
    kinds = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
    wrong = {kind: sorted(map(str, info[kind]))[:5] for kind in kinds if info.get(kind)}
    if wrong:
        raise ExportProblemError(f"the weights do not fit {type(model).__name__}: {wrong}")
    return model.eval()


def tie_again(model: Any) -> None:
    """Undo what two copies of a shared matrix in one checkpoint do: the loader takes them for two matrices.

    A DCP checkpoint holds the input and the output embeddings of a tied model. Where they differ they stay two, and
    the configuration says so.
    """
    import torch

    inner, outer = model.get_input_embeddings(), model.get_output_embeddings()
    if outer is None or not getattr(model.config, "tie_word_embeddings", False) or outer.weight is inner.weight:
        return
    if torch.equal(outer.weight, inner.weight):
        outer.weight = inner.weight
    else:
        model.config.tie_word_embeddings = False


def merge_adapter(model: Any, folder: Path) -> dict[str, Any]:
    """Add a LoRA adapter to the weights of its base model, in place; the changed ones by name.

    W + alpha / r * B A, with A [r, in] and B [out, r] (Hu et al. 2021, LoRA: Low-Rank Adaptation).
    """
    import torch
    from safetensors.torch import load_file

    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    if settings.get("use_dora") or settings.get("use_rslora") or settings.get("target_parameters"):
        raise ExportProblemError(f"{folder}: only plain LoRA on linear layers is merged here; use peft")
    parts = load_file(folder / "adapter_model.safetensors")
    weights, changed = dict(model.named_parameters()), {}
    for name in [name for name in parts if name.endswith(".lora_A.weight")]:
        module = name.removesuffix(".lora_A.weight")
        target = module.removeprefix("base_model.model.") + ".weight"
        a, b = parts.pop(name), parts.pop(f"{module}.lora_B.weight", None)
        if b is None or target not in weights:
            raise ExportProblemError(f"{folder}: the adapter's {name} has no counterpart in the base model")
        with torch.no_grad():
            weights[target] += (settings["lora_alpha"] / settings["r"]) * (b.float() @ a.float())
        changed[target] = weights[target].detach().clone()
    if parts or not changed:
        raise ExportProblemError(f"{folder}: cannot merge {sorted(parts)[:5] or 'an empty adapter'}")
    return changed


def verify(model_class: Any, folder: Path, tensors: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Load a folder as its users do, compare it with its source, and let it predict.

    Returns what was measured. Raises `ExportProblemError` when a weight is missing, new, other than in the source or
    no finite number, and when a prediction is none.
    """
    import torch
    import transformers

    model = load(model_class, folder, "auto")
    state = model.state_dict()
    if broken := [name for name, tensor in state.items() if not bool(torch.isfinite(tensor).all())]:
        raise ExportProblemError(f"{len(broken)} weights hold values that are not finite: {broken[:5]}")
    compared, different = 0, []
    for name, tensor in tensors:
        if name in state:
            compared += 1
            if not torch.equal(state[name], tensor.to(state[name].dtype)):
                different.append(name)
    if different or not compared:
        raise ExportProblemError(f"{len(different)} of {compared} weights differ from the source: {different[:5]}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return {
        "architecture": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": str(model.dtype).removeprefix("torch."),
        "weights_compared": compared,
        **_predict(model, tokenizer),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _predict(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Mean loss of a language model in nats per token; scores of a reward model for two texts in one batch."""
    import torch

    is_reward_model = "SequenceClassification" in type(model).__name__
    texts = [_TEXT, _TEXT * 2] if is_reward_model and tokenizer.pad_token is not None else [_TEXT]
    batch = tokenizer(texts, return_tensors="pt", padding=len(texts) > 1)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        answer = model(**inputs) if is_reward_model else model(**inputs, labels=inputs["input_ids"])
    numbers = answer.logits.flatten().tolist() if is_reward_model else [float(answer.loss)]
    if not all(map(math.isfinite, numbers)):
        raise ExportProblemError(f"the predictions are not finite numbers: {numbers}")
    if not is_reward_model:
        return {"loss": numbers[0]}
    if len(numbers) != len(texts):
        raise ExportProblemError(f"a reward model gives one score for a text, this one {len(numbers)} for {len(texts)}")
    return {"scores": numbers}


def _stored(folder: Path) -> Iterator[tuple[str, Any]]:
    """Whole tensors by name, put together from the shards of all ranks; a few in memory at a time."""
    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load as load_state

    is_dcp = (folder / ".metadata").is_file()
    reader: Any = FileSystemReader(folder) if is_dcp else HuggingFaceStorageReader(str(folder))
    metadata = reader.read_metadata()
    paths = metadata.planner_data or {}
    tensors = ((key, value) for key, value in metadata.state_dict_metadata.items() if hasattr(value, "properties"))
    while some := dict(islice(tensors, _AT_ONCE)):
        state: dict[str, Any] = {key: torch.empty(e.size, dtype=e.properties.dtype) for key, e in some.items()}
        load_state(state, storage_reader=reader, no_dist=True)
        # v1 wraps the model's names: ("model", "lm_head.weight").
        yield from ((paths[key][-1] if key in paths else key, tensor) for key, tensor in state.items())


def _in_safetensors(folder: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 (safe_open is not iterable)
                yield name, opened.get_tensor(name)


def _stored_type(folder: Path) -> Any:
    """The type of the stored weights: the base model's configuration may name a coarser one, which would round."""
    import torch

    binary = folder / "pytorch_model.bin"
    stored = torch.load(binary, mmap=True, weights_only=True).values() if binary.is_file() else None
    tensors = stored or (tensor for _, tensor in _in_safetensors(folder))
    return next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), "auto")


def _newest_iteration(weights: Path) -> Path:
    return max(weights.glob("iter_*"), key=lambda path: int(path.name.removeprefix("iter_")))


def _pretrained(iteration: Path) -> str:
    """The Megatron copy of the base model that an adapter was trained on, as the adapter's run noted it."""
    text = (iteration / "run_config.yaml").read_text(encoding="utf-8")
    for line in text.splitlines():
        name, _, value = line.strip().partition(":")
        if name == "pretrained_checkpoint" and value.strip() not in ("", "null"):
            return str(Path(value.strip().strip("'\"")) / "iter_0000000")
    raise ExportProblemError(f"{iteration / 'run_config.yaml'} does not say which base model the adapter belongs to")


def _write(source: Source, model: Any, out: Path) -> None:
    from transformers import AutoTokenizer
    from transformers.utils.hub import cached_file

    if source.is_reward_model and getattr(model.config, "pad_token_id", None) is None:
        # The score is read at the last token before the padding.
        model.config.pad_token_id = AutoTokenizer.from_pretrained(source.tokenizer).pad_token_id
    tie_again(model)
    model.save_pretrained(out)
    shutil.copytree(source.tokenizer, out, dirs_exist_ok=True)
    if source.is_reward_model:
        return
    # Where the base model stops generating; it is not trained, and the converters leave it out.
    try:
        settings = cached_file(source.base, "generation_config.json")
    except OSError:  # it has none
        return
    if settings is not None:
        shutil.copy(settings, out)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("format")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("staging", type=Path)
    parser.add_argument("loadable", type=Path, nargs="?")
    options = parser.parse_args(arguments)
    out = options.staging / "out"
    try:
        source = Source(options.format, options.checkpoint, options.staging, options.loadable)
        model, tensors = source.model()
        _write(source, model, out)
        del model
        gc.collect()
        report = verify(source.model_class, out, tensors)
    except ExportProblemError as error:
        sys.exit(f"export: {error}")
    (options.staging / "report.json").write_text(json.dumps(report, indent=2), encoding="utf-8")
    print(f"export: {json.dumps(report)}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
