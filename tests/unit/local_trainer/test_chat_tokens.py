"""Chat tokenisation: what is trained, BOS and EOS, templates, the length limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nvtrader_rl_dagster.local_trainer.chat_tokens import load_tokenizer, tokenize_messages, tokenize_pairs
from nvtrader_rl_dagster.local_trainer.config import Section
from nvtrader_rl_dagster.local_trainer.preference_data import DataError, PreferencePair

USER = {"role": "user", "content": "Is it risky?"}
ANSWER = {"role": "assistant", "content": "Yes, it is."}


def load(**settings: Any) -> Any:
    return load_tokenizer(Section({"name": "builtin:tiny", **settings}, "policy.tokenizer"))


def test_only_the_last_message_with_its_header_is_trained(tokenizer: Any) -> None:
    sequence = tokenize_messages(tokenizer, [USER, {"role": "assistant", "content": "Maybe."}, USER, ANSWER])
    trained = tokenizer.decode(sequence.tokens[sequence.trained_from :])
    assert trained == "<|im_start|>assistant\nYes, it is.<|im_end|>\n"
    assert sequence.trained_count == len(sequence.tokens) - sequence.trained_from
    before = tokenizer.decode(sequence.tokens[: sequence.trained_from])
    assert before.endswith("Maybe.<|im_end|>\n<|im_start|>user\nIs it risky?<|im_end|>\n")


def test_each_message_is_tokenised_alone(tokenizer: Any) -> None:
    whole = tokenize_messages(tokenizer, [USER, ANSWER])
    parts = ["<|im_start|>user\nIs it risky?<|im_end|>\n", "<|im_start|>assistant\nYes, it is.<|im_end|>\n"]
    assert list(whole.tokens) == [token for part in parts for token in tokenizer(part)["input_ids"]]


def test_bos_and_eos_are_added_only_where_the_template_has_none() -> None:
    plain = load(chat_template=None)
    assert (
        plain.decode(tokenize_messages(plain, [USER, ANSWER]).tokens) == "<|im_start|>Is it risky?Yes, it is.<|im_end|>"
    )
    # An EOS before the final newlines counts as present.
    own = load(chat_template="<|im_start|>{% for m in messages %}{{ m['content'] }}<|im_end|>\n\n{% endfor %}")
    text = own.decode(tokenize_messages(own, [USER, ANSWER]).tokens)
    assert text == "<|im_start|>Is it risky?<|im_end|>\n\nYes, it is.<|im_end|>\n\n"


def test_the_first_token_is_never_trained_because_nothing_predicts_it(tokenizer: Any) -> None:
    sequence = tokenize_messages(tokenizer, [ANSWER])
    assert sequence.trained_from == 0
    assert sequence.trained_count == len(sequence.tokens) - 1


def test_a_template_file_and_the_default_are_honoured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.jinja").write_text("{% for m in messages %}[{{ m['content'] }}]{% endfor %}")
    own = load(chat_template=str(tmp_path / "own.jinja"))
    assert own.decode(tokenize_messages(own, [USER]).tokens) == "<|im_start|>[Is it risky?]<|im_end|>"
    assert "im_start" in load(chat_template="default").chat_template
    load()
    out = capsys.readouterr().out
    assert "Loading chat template from file" in out
    assert "Using tokenizer's default chat template" in out
    assert "No chat template provided, using tokenizer's default" in out


def test_a_pair_above_the_limit_is_kept_masked_and_reported(tokenizer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    long = [{"role": "assistant", "content": "word " * 50}]
    pairs = [
        PreferencePair([USER], [ANSWER], [ANSWER], None, None, 1),
        PreferencePair([USER], [ANSWER], long, None, None, 7),
    ]
    lengths = len(tokenize_pairs(tokenizer, pairs, 1000)[0].chosen.tokens)
    assert [pair.valid for pair in tokenize_pairs(tokenizer, pairs, lengths, source="rows.jsonl")] == [
        True,
        False,
    ]
    assert "rows.jsonl:7: sequence length" in capsys.readouterr().out
    assert not tokenize_pairs(tokenizer, pairs[:1], lengths - 1)[0].valid


def test_a_tokenizer_without_a_template_is_an_error() -> None:
    bare = load()
    bare.chat_template = None
    with pytest.raises(DataError, match=r"policy\.tokenizer\.chat_template"):
        tokenize_pairs(bare, [], 10)
