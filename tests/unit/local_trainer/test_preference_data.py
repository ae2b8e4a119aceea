"""Rows: which completion wins, and what an unusable row's error says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainer_helpers import rank_row, write_rows

from nvtrader_rl_dagster.local_trainer.config import ConfigError, Section
from nvtrader_rl_dagster.local_trainer.preference_data import DataError, read_pairs, read_rank_file


def test_the_lower_rank_wins_wherever_it_stands(tmp_path: Path) -> None:
    first, second = rank_row(1), rank_row(2)
    second["completions"].reverse()
    second["completions"][0]["rank"], second["completions"][1]["rank"] = 1, 2
    pairs = read_rank_file(write_rows(tmp_path / "a.jsonl", [first, second]))
    assert [pair.chosen[0]["content"] for pair in pairs] == [
        f"Cost is the first risk: {number} percent over budget." for number in (1, 2)
    ]
    assert [pair.pair_id for pair in pairs] == ["pair-1", "pair-2"]


def test_bom_crlf_and_blank_lines_are_accepted_and_line_numbers_stay_true(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", [rank_row(1), rank_row(2)])
    one, two = (tmp_path / "a.jsonl").read_bytes().splitlines()
    (tmp_path / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + one + b"\r\n\r\n  \n" + two)
    pairs = read_rank_file(tmp_path / "b.jsonl")
    assert [pair.line for pair in pairs] == [1, 4]
    assert pairs[1].context[0]["content"] == "Question 2: what is the risk of this plan?"


def test_a_json_array_is_read_like_lines(tmp_path: Path) -> None:
    one, two = (write_rows(tmp_path / "x.jsonl", [rank_row(n)]).read_bytes() for n in (1, 2))
    (tmp_path / "a.json").write_bytes(b"[" + one + b"," + two + b"]")
    assert [pair.pair_id for pair in read_rank_file(tmp_path / "a.json")] == ["pair-1", "pair-2"]


def test_a_binary_row_has_its_keys_renamed_and_a_message_list_for_a_prompt(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}]
    path = write_rows(
        tmp_path / "b.jsonl", [{"q": "hi", "good": "a", "bad": "b"}, {"q": turns, "good": "c", "bad": "d"}]
    )
    block = {"dataset_name": "BinaryPreferenceDataset", "data_path": str(path), "split": "train",
             "prompt_key": "q", "chosen_key": "good", "rejected_key": "bad"}  # fmt: skip
    pairs = read_pairs(Section(block, "data.train"))
    assert pairs[0].context == [{"role": "user", "content": "hi"}]
    assert pairs[1].context == turns
    assert pairs[1].rejected == [{"role": "assistant", "content": "d"}]


def changed(**changes: Any) -> dict[str, Any]:
    return rank_row(2) | changes


def with_ranks(*ranks: Any) -> dict[str, Any]:
    side = [{"role": "assistant", "content": "x"}]
    return changed(completions=[{"rank": rank, "completion": side} for rank in ranks])


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (with_ranks(0, 1, 2), "exactly 2"),
        (with_ranks(1, 1), "tie"),
        (with_ranks(0, "1"), "mixes"),
        (with_ranks(0, None), r"completions\[1\].rank"),
        (with_ranks(True, 0), r"completions\[0\].rank"),
        (changed(context=None), "'context'"),
        (changed(context=[{"role": "user", "content": None}]), r"context\[0\].content"),
        (
            changed(completions=[{"rank": 0, "completion": []}, {"rank": 1, "completion": []}]),
            r"completions\[0\].completion",
        ),
        (changed(completions=["a", "b"]), r"completions\[0\]"),
        ([], "JSON object"),
    ],
)
def test_an_unusable_row_is_an_error_with_file_line_and_field(tmp_path: Path, row: Any, named: str) -> None:
    path = write_rows(tmp_path / "bad.jsonl", [rank_row(1), row])
    with pytest.raises(DataError, match=rf"bad\.jsonl:2: .*{named}"):
        read_rank_file(path)


def test_a_cut_line_an_empty_file_and_another_format_are_errors(tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text('{"context": [{"ro')
    with pytest.raises(DataError, match=r"cut\.jsonl:1: not valid JSON"):
        read_rank_file(tmp_path / "cut.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="no rows"):
        read_rank_file(tmp_path / "empty.jsonl")
    with pytest.raises(DataError, match="no such file"):
        read_rank_file(tmp_path / "absent.jsonl")
    with pytest.raises(DataError, match="convert the file"):
        read_rank_file(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    "change", [{"dataset_name": "HelpSteer3"}, {"split": "test"}, {"subset": "x"}, {"prompt_file": "p"}]
)
def test_a_block_that_cannot_be_honoured_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    path = write_rows(tmp_path / "a.jsonl", [rank_row(1)])
    with pytest.raises(ConfigError, match=r"data\.train"):
        read_pairs(Section({"dataset_name": "PreferenceDataset", "data_path": str(path), **change}, "data.train"))
