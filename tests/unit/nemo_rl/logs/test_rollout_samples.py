"""Sample files of the RL algorithms: every value but `idx` is a list of one."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from nvtrader_rl_dagster.nemo_rl.logs.samples import RolloutSample, read_samples, sample_files

TRAINED = {
    "content": [["What is 1+1?", "2"]],
    "rewards": [0.5],
    "input_lengths": [4],
    "token_loss_mask": [[0, 0, 1, 1]],
    "advantages": [[9.0, 9.0, 1.0, 2.0]],
    "idx": 3,
}
VALIDATED = {"content": [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]], "rewards": [1.0]}


def write(path: Path, *rows: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def test_a_training_sample(tmp_path: Path) -> None:
    file = write(tmp_path / "train_data_step12.jsonl", TRAINED)
    assert list(read_samples(file)) == [RolloutSample(12, "train", 3, "What is 1+1?\n\n2", 0.5, 4, 1.5)]


def test_a_validation_sample(tmp_path: Path) -> None:
    file = write(tmp_path / "val_data_step0.jsonl", {**VALIDATED, "idx": 0})
    assert list(read_samples(file)) == [RolloutSample(0, "validation", 0, "hi\n\nho", 1.0, None, None)]


def test_distillation_writes_no_reward_and_a_later_release_may_write_bare_values(tmp_path: Path) -> None:
    file = write(tmp_path / "train_data_step1.jsonl", {"content": ["text"], "input_lengths": 7, "idx": 0})
    assert list(read_samples(file)) == [RolloutSample(1, "train", 0, "text", None, 7, None)]


def test_not_a_number_is_no_reward(tmp_path: Path) -> None:
    file = tmp_path / "train_data_step1.jsonl"
    file.write_text('{"content": ["x"], "rewards": [NaN], "advantages": [[NaN, 1.0]], "idx": 0}\n', encoding="utf-8")
    (sample,) = read_samples(file)
    assert (sample.reward, sample.advantage) == (None, None)


def test_a_cut_last_line_is_left_out_and_another_broken_line_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "val_data_step2.jsonl", {**VALIDATED, "idx": 0}, {**VALIDATED, "idx": 1})
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    assert [s.index for s in read_samples(file)] == [0]
    file.write_bytes(b"{}\n" + whole)
    with pytest.raises(ValueError, match=r"val_data_step2\.jsonl: line 1 is no sample"):
        list(read_samples(file))


def test_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="train_data_step<N>"):
        list(read_samples(write(tmp_path / "samples.jsonl", TRAINED)))


def test_files_are_found_in_the_order_of_their_steps(tmp_path: Path) -> None:
    names = ["exp_001/train_data_step2.jsonl", "exp_001/train_data_step10.jsonl", "exp_002/val_data_step2.jsonl"]
    for name in [*names, "exp_001/other.jsonl", "exp_001/train_data_stepx.jsonl"]:
        write(tmp_path / name, TRAINED)
    assert [str(path.relative_to(tmp_path)) for path in sample_files(tmp_path)] == [names[0], names[2], names[1]]
