"""Rows that are too long: bounded by bytes where that is enough, else counted with the model's own tokenizer."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from looking import EMBEDDED, case_of, changed, codes, complete, look, make_tree, nemo_rl

from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.preflight import length_probe, lengths
from nvtrader_rl_dagster.nemo_rl.preflight.check import preflight
from nvtrader_rl_dagster.nemo_rl.preflight.data_blocks import data_blocks
from nvtrader_rl_dagster.nemo_rl.preflight.data_rows import LoaderRules, scan
from nvtrader_rl_dagster.nemo_rl.preflight.report import Level
from tests.preflight_cases import lines, pair, question

#: What the template of the tests and BOS and EOS add: `<s>` and `</s>`, `<user>` and `<assistant>`.
_PAIR = 2 + len("<user>") + len("<assistant>")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return complete(tmp_path_factory.mktemp("dpo"), "dpo", max_sequence_tokens=300)


def with_rows(config: dict[str, Any], file: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    file.write_bytes(lines(*rows))
    return changed(config, {"data.train.data_path": str(file), "policy.train_global_batch_size": 2})


def pair_of(tokens: int) -> dict[str, Any]:
    """A pair whose chosen side has so many tokens; byte-level, so a character is one."""
    size = tokens - _PAIR - 1
    return pair(context__0__content="q", completions__0__completion__0__content="é" * (size // 2) + "a" * (size % 2))


def test_short_rows_are_bounded_by_their_bytes_and_no_process_is_started(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lengths, "_PROBE", Path("/no/such/probe.py"))
    report = look("dpo", changed(config, {"data.max_input_seq_length": 1024}), EMBEDDED)
    assert [(rows.lengths, rows.too_long) for rows in report.data] == [("bytes", 0), ("bytes", 0)]
    assert report.data[0].longest is not None and 100 < report.data[0].longest < 500


def test_doubtful_rows_are_counted_in_tokens_by_the_interpreter_of_the_trainer(
    config: dict[str, Any], tmp_path: Path
) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho asked >> {tmp_path / "asked"}\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    rows = [pair(1), pair_of(299), pair_of(301)]
    trainer = Trainer("local", "for a test", str(wrapper))
    report = look("dpo", with_rows(config, tmp_path / "rows.jsonl", rows), trainer)
    assert report.data[0].longest == 301 and report.data[0].lengths == "tokens"
    assert report.data[0].too_long == 1 and codes(report) == [] and "too_long" in codes(report, Level.WARN)
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.fixture(scope="module")
def tokenizer(config: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(config["policy"]["model_name"])


def counted(tokenizer: Any, algo: str, row: dict[str, Any], limit: int, folder: Path) -> tuple[int, int]:
    """Longest and too many, as the process counts them that runs in the trainer's interpreter."""
    config = with_rows(complete(folder, algo), folder / "rows.jsonl", [row])
    case = case_of(algo, changed(config, {"data.max_input_seq_length": limit}), make_tree(folder / "tree"))
    blocks, _ = data_blocks(case)
    found = scan(blocks[0], case, LoaderRules.of(case), limit)
    task = {"tokenizer": {}, "sets": [lengths.set_to_count(case, found, limit, folder / "set")]}
    answer = length_probe.count(tokenizer, task, time.monotonic() + 60)
    assert answer["complete"] and answer["sets"][0]["rows"] == 1
    return answer["sets"][0]["longest"], answer["sets"][0]["too_long"]


@pytest.mark.parametrize(
    ("algo", "row", "tokens", "at_limit"),
    [
        ("dpo", pair_of(301), 301, 0),
        ("rm", pair_of(301), 301, 0),
        ("sft", {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a" * 281}]}, 301, 1),
        # a prompt gets neither BOS nor EOS
        ("grpo", question(input="q" * 295), 301, 1),
    ],
)
def test_a_pair_may_be_as_long_as_the_limit_a_conversation_may_not(
    tokenizer: Any, algo: str, row: dict[str, Any], tokens: int, at_limit: int, tmp_path: Path
) -> None:
    for limit, too_long in ((tokens - 1, 1), (tokens, at_limit), (tokens + 1, 0)):
        assert counted(tokenizer, algo, row, limit, tmp_path / str(limit)) == (tokens, too_long)


def _counting(trainer: Trainer) -> Trainer:
    """The tokenizer is asked of an interpreter that is known: give the tree a package to be asked about."""
    assert trainer.source is not None
    (trainer.source / "nemo_rl" / "algorithms").mkdir(exist_ok=True)
    return trainer


def test_a_set_of_which_every_row_is_too_long_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    report = look("dpo", with_rows(config, tmp_path / "rows.jsonl", [pair_of(501), pair_of(601)]), EMBEDDED)
    assert codes(report) == ["all_too_long"]
    assert "2 of 2 rows have more than 300 tokens" in report.refusals[0].message


def test_counts_are_kept_for_the_same_rows_and_tokenizer(config: dict[str, Any], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    case = with_rows(config, tmp_path / "rows.jsonl", [pair(1), pair_of(301)])
    first = preflight("dpo", case, EMBEDDED, cache=cache)
    (kept,) = cache.iterdir()
    kept.write_text(kept.read_text().replace('"longest": 301', '"longest": 333'))
    again = preflight("dpo", case, EMBEDDED, cache=cache)
    assert (first.data[0].longest, again.data[0].longest) == (301, 333)
    other = with_rows(config, tmp_path / "rows.jsonl", [pair(1), pair_of(303)])
    assert preflight("dpo", other, EMBEDDED, cache=cache).data[0].longest == 303


def test_without_a_tokenizer_lengths_are_estimated_and_that_is_said(config: dict[str, Any], tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text("{}")
    case = with_rows(config, tmp_path / "rows.jsonl", [pair(1), pair_of(2001)])
    report = look("dpo", changed(case, {"policy.tokenizer": {"name": str(model)}}), EMBEDDED)
    assert report.data[0].lengths == "estimate" and report.data[0].too_long == 1
    assert report.data[0].longest == (2001 - _PAIR) // 4 and "lengths_estimated" in codes(report, Level.WARN)


def test_a_built_in_tokenizer_is_left_to_the_embedded_trainer(config: dict[str, Any], tmp_path: Path) -> None:
    built_in = {"policy.model_name": "builtin:tiny", "policy.tokenizer": {"name": "builtin:tiny"}}
    case = with_rows(config, tmp_path / "rows.jsonl", [pair(1), pair_of(2001)])
    report = look("dpo", changed(case, built_in), EMBEDDED)
    assert report.data[0].lengths == "estimate" and codes(report) == []
    assert "lengths_estimated" not in codes(report, Level.WARN)


def test_a_batch_of_which_every_row_may_be_masked_is_foretold(config: dict[str, Any], tmp_path: Path) -> None:
    tree = _counting(nemo_rl(make_tree(tmp_path / "tree")))
    half = with_rows(config, tmp_path / "rows.jsonl", [pair(n) for n in range(5)] + [pair_of(301)] * 5)
    cache = tmp_path / "cache"
    report = preflight("dpo", half, tree, cache=cache)
    # 5 batches of 2; of 45 pairs of rows 10 are both masked
    (finding,) = (finding for finding in report.findings if finding.code == "masked_batch")
    assert finding.level is Level.WARN and "1.1 such batches" in finding.message
    single = preflight("dpo", changed(half, {"policy.train_global_batch_size": 1}), tree, cache=cache)
    assert "masked_batch" in codes(single)


def test_a_template_of_the_configuration_is_used(config: dict[str, Any], tmp_path: Path) -> None:
    case = with_rows(config, tmp_path / "rows.jsonl", [pair_of(301)] * 2)
    report = look("dpo", changed(case, {"policy.tokenizer.chat_template": None}), EMBEDDED)
    assert report.data[0].longest == 301 - _PAIR + 2
