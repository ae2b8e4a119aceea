"""The part of an export that runs in the trainer's interpreter, on models of a few thousand weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
import yaml
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedTokenizerFast,
)

from nvtrader_rl_dagster.nemo_rl.export.trainer_side import assemble

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


class Place:
    """A base model and one checkpoint of a training that started from it."""

    def __init__(self, root: Path) -> None:
        self.base, self.step = root / "base", root / "step_2"
        self.weights = self.step / "policy/weights/model"
        self.tokenizer = self.step / "policy/tokenizer"
        self.staging = root / "staging"
        self.staging.mkdir()
        self.weights.mkdir(parents=True)
        words = {word: n for n, word in enumerate(["<unk>", "<pad>", "fund", "the", "fell", "The", "and", "."])}
        tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
        tokenizer.pre_tokenizer = Whitespace()
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>")
        fast.chat_template = "of the base model"
        fast.save_pretrained(self.base)
        fast.chat_template = "of the checkpoint"
        fast.save_pretrained(self.tokenizer)
        # The base model says bfloat16 and has two labels; training is in float32 with one.
        self.config = LlamaConfig(vocab_size=len(words), tie_word_embeddings=True, dtype="bfloat16", **SIZES)
        self.config.pad_token_id = None
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(self.config).save_pretrained(self.base)
        (self.base / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
        self.configure()

    def configure(self, **policy: Any) -> None:
        settings = {"policy": {"model_name": str(self.base), **policy}}
        (self.step / "config.yaml").write_text(yaml.safe_dump(settings))

    def trained(self, reward: bool = False) -> Any:
        torch.manual_seed(2)
        config = LlamaConfig(**{**self.config.to_dict(), "dtype": "float32"})
        if reward:
            config.num_labels = 1
            return AutoModelForSequenceClassification.from_config(config)
        return AutoModelForCausalLM.from_config(config)

    def export(self, kind: str, loadable: Path | None = None) -> Path:
        assemble.main([kind, str(self.step), str(self.staging), *([str(loadable)] if loadable else [])])
        return self.staging / "out"

    def refused(self, kind: str, loadable: Path | None = None) -> str:
        with pytest.raises(SystemExit) as refusal:
            self.export(kind, loadable)
        assert not (self.staging / "report.json").exists()
        return str(refusal.value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def save_shards(model: Any, folder: Path) -> None:
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True))


def test_shards_become_a_folder_that_any_user_loads(place: Place) -> None:
    model = place.trained()
    save_shards(model, place.weights)
    folder = place.export("safetensors")
    loaded, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert loaded.dtype is torch.float32, "bfloat16 of the base model would round"
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert AutoTokenizer.from_pretrained(folder).chat_template == "of the checkpoint"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [5, 7]
    report = json.loads((place.staging / "report.json").read_text())
    assert report["weights_compared"] == len(model.state_dict()) - 1 and report["loss"] > 0


def test_a_reward_model_loads_with_its_trained_score_head(place: Place) -> None:
    place.configure(reward_model_cfg={"enabled": True, "reward_model_type": "bradley_terry"})
    model = place.trained(reward=True)
    save_shards(model, place.weights)
    folder = place.export("safetensors")
    loaded, info = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert loaded.config.num_labels == 1 and torch.equal(loaded.score.weight, model.score.weight)
    assert loaded.config.pad_token_id == 1, "without it a batch cannot be scored"
    assert loaded.config.architectures == ["LlamaForSequenceClassification"]
    assert len(json.loads((place.staging / "report.json").read_text())["scores"]) == 2


def test_overrides_of_the_training_are_in_the_configuration(place: Place) -> None:
    place.configure(hf_config_overrides={"max_position_embeddings": 77})
    save_shards(place.trained(), place.weights)
    assert json.loads((place.export("safetensors") / "config.json").read_text())["max_position_embeddings"] == 77


def adapter(place: Place, **settings: Any) -> torch.Tensor:
    """An adapter on one layer; its product."""
    a, b = torch.randn(2, 16), torch.randn(16, 2)
    name = "base_model.model.model.layers.1.self_attn.q_proj"
    tensors = {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}
    save_file(tensors, place.weights / "adapter_model.safetensors")
    (place.weights / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 8, **settings}))
    return 4 * b @ a


def test_an_adapter_is_merged_into_its_base_model(place: Place) -> None:
    product = adapter(place)
    merged = AutoModelForCausalLM.from_pretrained(place.export("lora")).state_dict()
    before = AutoModelForCausalLM.from_pretrained(place.base, dtype=torch.float32).state_dict()
    changed = [name for name in merged if not torch.equal(merged[name], before[name])]
    assert changed == ["model.layers.1.self_attn.q_proj.weight"]
    assert torch.allclose(merged[changed[0]] - before[changed[0]], product, atol=1e-5)
    assert merged[changed[0]].dtype is torch.float32, "the product is smaller than bfloat16 resolves"


def test_an_adapter_that_cannot_be_merged_is_refused(place: Place) -> None:
    adapter(place, use_dora=True)
    assert "only plain LoRA" in place.refused("lora")
    adapter(place)
    tensors = load_file(place.weights / "adapter_model.safetensors")
    save_file({f"x.{name}": tensor for name, tensor in tensors.items()}, place.weights / "adapter_model.safetensors")
    assert "no counterpart in the base model" in place.refused("lora")
    adapter(place)
    place.configure(reward_model_cfg={"enabled": True})
    assert "lacks the trained score head" in place.refused("lora")


def test_a_missing_weight_is_refused(place: Place) -> None:
    model = place.trained()
    del model.model.layers[1].mlp.up_proj.weight
    save_shards(model, place.weights)
    refusal = place.refused("safetensors")
    assert "do not fit LlamaForCausalLM" in refusal and "model.layers.1.mlp.up_proj.weight" in refusal


def test_a_weight_that_is_no_number_is_refused(place: Place) -> None:
    model = place.trained()
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] = float("nan")
    save_shards(model, place.weights)
    assert "not finite: ['model.layers.0.mlp.up_proj.weight']" in place.refused("safetensors")


def test_a_folder_that_differs_from_its_source_is_refused(place: Place) -> None:
    save_shards(place.trained(), place.weights)
    folder = place.export("safetensors")
    tensors = load_file(folder / "model.safetensors")
    source = [("model.norm.weight", tensors["model.norm.weight"] + 1)]
    with pytest.raises(assemble.ExportProblemError, match=r"1 of 1 weights differ .*model\.norm\.weight"):
        assemble.verify(AutoModelForCausalLM, folder, source)
    with pytest.raises(assemble.ExportProblemError, match="0 of 0"):
        assemble.verify(AutoModelForCausalLM, folder, [])


def test_two_equal_embeddings_of_a_tied_model_become_one_again(place: Place) -> None:
    """A DCP checkpoint holds both, and the loader takes them for two."""
    model = place.trained()
    consolidated = place.weights / "consolidated"
    model.save_pretrained(consolidated)
    both = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(both, consolidated / "model.safetensors", metadata={"format": "pt"})
    folder = place.export("consolidated", consolidated)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
    assert AutoTokenizer.from_pretrained(folder).chat_template == "of the checkpoint"

    both["lm_head.weight"] = both["lm_head.weight"] + 1
    save_file(both, consolidated / "model.safetensors", metadata={"format": "pt"})
    shutil.rmtree(folder)
    folder = place.export("consolidated", consolidated)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(loaded.lm_head.weight, both["lm_head.weight"])
    assert torch.equal(loaded.model.embed_tokens.weight, both["model.embed_tokens.weight"])


def test_a_checkpoint_without_its_tokenizer_is_refused(place: Place) -> None:
    shutil.rmtree(place.tokenizer)
    assert "policy/tokenizer is not there" in place.refused("safetensors")


def test_without_the_tree_no_converter_is_found(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    dcp.save({"model": place.trained().state_dict()}, checkpoint_id=str(place.weights.parent))
    assert "convert_dcp_to_hf.py is not there; point NVTRADER_NEMORL_SRC" in place.refused("dcp")
