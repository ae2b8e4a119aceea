"""Chat tokenisation: one message at a time, as NeMo-RL does it, so that masks fall on message borders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.local_trainer.config import Section
from nvtrader_rl_dagster.local_trainer.console import say
from nvtrader_rl_dagster.local_trainer.models import resolve_model
from nvtrader_rl_dagster.local_trainer.preference_data import DataError, Message, PreferencePair

# NeMo-RL's `chat_template: null`: the contents one after the other.
PASSTHROUGH_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@dataclass(frozen=True)
class TokenSequence:
    """Token ids of a conversation; ids from ``trained_from`` on (the last message) count in the loss."""

    tokens: tuple[int, ...]
    trained_from: int

    @property
    def trained_count(self) -> int:
        """Trained tokens that have a predecessor to be predicted from."""
        return len(self.tokens) - max(self.trained_from, 1)


@dataclass(frozen=True)
class TokenizedPair:
    """Both sides of a pair; ``valid`` is False when a side is longer than the limit."""

    chosen: TokenSequence
    rejected: TokenSequence
    valid: bool


def common_length(first: Sequence[Any], *others: Sequence[Any]) -> int:
    """How many leading elements (or characters) all the sequences share."""
    for index, (one, *rest) in enumerate(zip(first, *others, strict=False)):
        if any(other != one for other in rest):
            return index
    return min(len(first), *map(len, others)) if others else len(first)


def load_tokenizer(settings: Section) -> Any:
    """The tokenizer of ``policy.tokenizer`` with its chat template chosen as NeMo-RL chooses it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_model(settings.get("name", str)), local_files_only=True)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if "chat_template" not in settings.values:
        say("No chat template provided, using tokenizer's default")
    elif settings.values["chat_template"] is None:
        say("Using passthrough chat template")
        tokenizer.chat_template = PASSTHROUGH_TEMPLATE
    else:
        template = settings.get("chat_template", str)
        if template.lower() == "default":
            say("Using tokenizer's default chat template")
        elif template.endswith(".jinja"):
            say(f"Loading chat template from file: {template}")
            tokenizer.chat_template = Path(template).read_text(encoding="utf-8")
        else:
            say("Using custom chat template")
            tokenizer.chat_template = template
    return tokenizer


def tokenize_messages(
    tokenizer: Any, messages: Sequence[Message], template_kwargs: dict[str, Any] | None = None
) -> TokenSequence:
    """Tokenise a conversation whose last message is the trained one.

    Each message is the text that it adds to the rendered conversation, tokenised alone. BOS is put before
    the first and EOS after the last message unless the template did so.
    """
    tokens: list[int] = []
    trained_from = 0
    before = ""
    for index in range(len(messages)):
        rendered = tokenizer.apply_chat_template(
            list(messages[: index + 1]),
            tokenize=False,
            add_generation_prompt=False,
            **(template_kwargs or {}),
        )
        chunk = rendered[common_length(before, rendered) :]
        if index == 0 and tokenizer.bos_token is not None and not chunk.startswith(tokenizer.bos_token):
            chunk = tokenizer.bos_token + chunk
        if (
            index == len(messages) - 1
            and tokenizer.eos_token is not None
            and not chunk.rstrip("\n").endswith(tokenizer.eos_token)
        ):
            chunk += tokenizer.eos_token
        trained_from = len(tokens)
        tokens.extend(tokenizer(chunk, add_special_tokens=False)["input_ids"])
        before = rendered
    return TokenSequence(tuple(tokens), trained_from)


def tokenize_pairs(
    tokenizer: Any,
    pairs: Sequence[PreferencePair],
    max_length: int,
    template_kwargs: dict[str, Any] | None = None,
    source: str = "",
) -> list[TokenizedPair]:
    """Tokenise pairs; a pair with a side of more than ``max_length`` tokens is kept but not valid."""
    if not tokenizer.chat_template:
        raise DataError(
            "the tokenizer has no chat template; set policy.tokenizer.chat_template to a template, "
            "a .jinja file or null."
        )
    result = []
    for pair in pairs:
        chosen, rejected = (
            tokenize_messages(tokenizer, pair.context + side, template_kwargs) for side in (pair.chosen, pair.rejected)
        )
        longest = max(len(chosen.tokens), len(rejected.tokens))
        if longest > max_length:
            say(
                f"  ⚠️ {source}:{pair.line}: sequence length {longest} exceeds max_input_seq_length {max_length}; "
                "the pair is masked out of the loss"
            )
        result.append(TokenizedPair(chosen, rejected, longest <= max_length))
    return result
