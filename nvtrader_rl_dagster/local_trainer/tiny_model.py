"""``builtin:tiny``: a random Llama of 2 M parameters with a byte-level BPE of 2048, the same on every machine."""

from __future__ import annotations

import hashlib
import json
from itertools import product
from pathlib import Path
from typing import Any

SEED = 20240
VOCABULARY = 2048
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ARCHITECTURE: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}

_SUBJECTS = (
    "The semiconductor sleeve", "Our energy position", "The short-duration bond fund", "The small-cap basket",
    "The dividend portfolio", "The currency overlay", "The technology overweight", "The cash buffer",
    "The emerging-market allocation", "The infrastructure holding",
)  # fmt: skip
_EVENTS = (
    "gained 2.4 percent this quarter", "lagged its benchmark by 80 basis points", "was trimmed after earnings",
    "stays inside its risk limit", "drifted above the target weight", "was hedged with index futures",
)  # fmt: skip
_REASONS = (
    "because guidance was cut twice.", "as inflation data surprised to the upside.",
    "while volatility fell to a two-year low.", "and the mandate allows no further concentration.",
    "so the committee asked for a written review.", "since the filing was disclosed late.",
)  # fmt: skip
_TALK = (
    "What is the main risk of this rebalance, and what would change your mind?",
    "Explain the trade in plain language for a client who is not an expert.",
    "Which source supports the claim about revenue growth in the annual report?",
    "I do not know; the available data is not sufficient to answer this question.",
    "Yes, I approve the recommendation, but please reduce the position size by half.",
    "No, this is rejected: the response ignores liquidity, taxes and transaction costs.",
    "Please summarise the quarter in three short sentences and name one uncertainty.",
    "You are a careful assistant. user assistant system approve reject hold buy sell",
)


def training_text() -> list[str]:
    """The sentences from which the tokenizer learns its merges."""
    return [" ".join(parts) for parts in product(_SUBJECTS, _EVENTS, _REASONS)] + list(_TALK) * 20


def tiny_key() -> str:
    """Changes when anything in this recipe changes."""
    recipe = json.dumps([SEED, VOCABULARY, SPECIAL, CHAT_TEMPLATE, ARCHITECTURE, training_text()])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def build_tiny(folder: Path) -> None:
    """Write model and tokenizer into ``folder`` in Hugging Face form."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(training_text(), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[2],
        unk_token=SPECIAL[0],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **ARCHITECTURE,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        LlamaForCausalLM(config).save_pretrained(folder)
