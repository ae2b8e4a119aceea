"""A DPO run on the tiny model: lines, checkpoints, resume, limits, and runs that train nothing."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from trainer_helpers import rank_row, write_rows

from nvtrader_rl_dagster.local_trainer.config import ConfigError
from nvtrader_rl_dagster.local_trainer.preference_data import DataError

Train = Callable[..., str]
WEIGHTS = Path("policy/weights/model/consolidated")


def digest(step: Path) -> str:
    return hashlib.sha256((step / WEIGHTS / "model.safetensors").read_bytes()).hexdigest()


def info(step: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((step / "training_info.json").read_text())
    return result


def bullets(out: str, label: str) -> list[float]:
    """Every value of one bullet of the training blocks."""
    return [float(value) for value in re.findall(rf"^  • {label}: (\S+)$", out, flags=re.M)]


# The line shapes of NeMo-RL 0.6.0's DPO, from recorded runs.
NUMBER = r"-?\d+\.\d{4}"
METRICS = (
    "loss", "sft_loss", "preference_loss", "accuracy", "rewards_chosen_mean", "rewards_rejected_mean",
    "num_valid_samples", "global_valid_seqs", "global_valid_toks",
)  # fmt: skip
VALIDATION = (
    r"▶ Starting validation at step \d+ for `default` set\.\.\n\n📊 Validation Results for `default` set:\n"
    + "".join(rf"    • Validation {name}: {NUMBER}\n" for name in METRICS)
    + r"\n  ⏱️  Validation Timing for `default` set:\n    • Total validation time: \d+\.\d\ds\n"
)
RESULTS = (
    r"\n📊 Training Results:\n"
    + "".join(rf"  • {name}: {NUMBER}\n" for name in METRICS)
    + r"\n⏱️  Timing:\n  • Total step time: \d+\.\d\ds\n(  • [a-z_/]+: \d+\.\d\ds \(\d+\.\d%\)\n)+"
)
STEP = r"\n={25} Step \d+/4 ={25}\n▶ Taking a training step\.\.\.\n"
RUN = (
    r"Loaded configuration from: \S+\nApplied CLI overrides\nFinal config:\n\{'checkpointing': [\s\S]*?"
    r"📊 Using checkpoint directory: ckpt\nNo chat template provided, using tokenizer's default\n"
    r"\n▶ Setting up data\.\.\.\n  ✓ Training dataset loaded with 8 samples\.\n"
    r"  ✓ Validation dataset loaded with 4 samples\.\n[\s\S]*?"
    r"\n▶ Setting up model\.\.\.\n  ✓ Model initialized\n(  ✓ Reference log-probs: \d+/8 pairs\n)+"
    r"\n={60}\n {18}SETUP COMPLETE\n={60}\n\n"
    rf"\n🔍 Running initial validation\.\.\.\n{VALIDATION}"
    rf"\n={{25}} Epoch 1/3 ={{25}}\n{STEP}{RESULTS}{STEP}{VALIDATION}Saving checkpoint for step 2\.\.\.\n{RESULTS}"
    r"Max number of steps has been reached, stopping training early\n"
)


def test_the_lines_have_the_shapes_of_the_recorded_runs(train: Train) -> None:
    out = train({"dpo.max_num_steps": 2, "policy.train_global_batch_size": 2})
    # NeMo-RL writes S = min(batches of an epoch, max_num_steps).
    assert re.fullmatch(RUN.replace("Step \\d+/4", "Step \\d+/2"), out), out


def test_a_run_starts_at_ln_2_learns_and_leaves_a_loadable_checkpoint(train: Train, workspace: Path) -> None:
    out = train()
    losses = bullets(out, "loss")
    assert losses[0] == pytest.approx(math.log(2), abs=5e-5)
    assert losses[-1] < 0.3
    assert re.findall(r"Epoch (\d)/3", out) == ["1", "2"]
    assert re.findall(r"Step (\d/\d)", out) == ["1/4", "2/4", "3/4", "4/4", "1/4", "2/4"]
    step = workspace / "ckpt" / "step_6"
    record = info(step)
    assert (record["epoch"], record["step"], record["total_steps"], record["consumed_samples"]) == (
        1,
        2,
        6,
        12,
    )
    assert record["total_valid_tokens"] == sum(bullets(out, "global_valid_toks"))
    assert record["val:validation-default_loss"] == record["validation-default_loss"] < 0.3
    saved = yaml.safe_load((step / "config.yaml").read_text())
    assert saved["policy"]["optimizer"]["kwargs"]["lr"] == 1e-3

    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(step / WEIGHTS)
    tokenizer = AutoTokenizer.from_pretrained(step / WEIGHTS)
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(step / "policy" / "tokenizer").chat_template
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Risk?"}], tokenize=False)
    assert torch.isfinite(model(**tokenizer(text, return_tensors="pt")).logits).all()
    assert model.dtype == torch.float32


@pytest.mark.parametrize("stop", [1, 3, 4, 5])
def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(train: Train, workspace: Path, stop: int) -> None:
    whole = train({"checkpointing.checkpoint_dir": "whole"})
    first = train({"checkpointing.checkpoint_dir": "halves", "dpo.max_num_steps": stop})
    second = train({"checkpointing.checkpoint_dir": "halves"})
    assert f"Resuming from halves/step_{stop} after step {stop}" in second
    assert "initial validation" not in second
    assert digest(workspace / "halves/step_6") == digest(workspace / "whole/step_6")
    assert bullets(first, "loss") + bullets(second, "loss") == bullets(whole, "loss")
    assert info(workspace / "halves/step_6") == info(workspace / "whole/step_6")
    states = [
        torch.load(workspace / name / "step_6/policy/optimizer/optimizer.pt", weights_only=True)
        for name in ("whole", "halves")
    ]
    assert states[0]["scheduler"] == states[1]["scheduler"]


def test_a_finished_epoch_is_exhausted_as_in_nemo_rl(train: Train, workspace: Path) -> None:
    train({"dpo.max_num_epochs": 1, "dpo.max_num_steps": 4})
    assert info(workspace / "ckpt/step_4")["step"] == 0
    more_steps = train({"dpo.max_num_epochs": 1, "dpo.max_num_steps": 6})
    assert "Step" not in more_steps.split("SETUP COMPLETE")[1]
    assert "raise dpo.max_num_steps and, after a finished epoch, dpo.max_num_epochs" in more_steps
    more_epochs = train({"dpo.max_num_epochs": 2, "dpo.max_num_steps": 6})
    assert re.findall(r"Epoch \d/2|Step \d/4", more_epochs) == [
        "Epoch 1/2",
        "Epoch 2/2",
        "Step 1/4",
        "Step 2/4",
    ]


def test_without_optimizer_state_the_resume_says_so(train: Train) -> None:
    train({"dpo.max_num_steps": 2, "checkpointing.save_optimizer": False})
    assert "optimizer and scheduler start fresh" in train({"dpo.max_num_steps": 3})


def test_resuming_with_other_data_says_that_the_position_is_kept(train: Train, workspace: Path) -> None:
    train({"dpo.max_num_steps": 3})
    write_rows(workspace / "train.jsonl", [rank_row(number) for number in range(12)])
    assert "the resumed run had other rows: the old position 3 is kept" in train({"dpo.max_num_steps": 4})


def test_an_epoch_visits_every_pair_once_in_another_order_each_time() -> None:
    from nvtrader_rl_dagster.local_trainer.batches import BatchOrder

    order = BatchOrder(rows=10, batch_size=2, shuffle=True, seed=3)
    epochs = [[row for batch in order.epoch(number) for row in batch] for number in range(3)]
    assert all(sorted(rows) == list(range(10)) for rows in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert BatchOrder(10, 2, False, 3).epoch(1)[0] == [0, 1]


def test_pairs_that_do_not_fill_a_batch_are_counted_aloud(train: Train) -> None:
    out = train({"policy.train_global_batch_size": 3, "dpo.max_num_steps": 2})
    assert "2 of 8 pairs are left out in each epoch: they do not fill a batch of 3" in out


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"policy.train_global_batch_size": 9}, "8 pairs do not fill one batch of 9"),
        ({"dpo.max_num_steps": 0}, "not above 0"),
        ({"dpo.max_num_epochs": 0}, "not above 0"),
    ],
)
def test_a_run_without_a_step_ends_well_says_why_and_leaves_no_checkpoint(
    train: Train, workspace: Path, changes: dict[str, Any], reason: str
) -> None:
    out = train(changes)
    assert "Validation loss: 0.6931" in out
    assert f"no training step was done: {reason}" in out or reason in out
    assert not (workspace / "ckpt").exists()


def test_too_long_pairs_are_masked_and_a_batch_of_them_changes_nothing(train: Train, workspace: Path) -> None:
    rows = [rank_row(number, chosen="too long " * 300 if number < 2 else None) for number in range(4)]
    write_rows(workspace / "train.jsonl", rows)
    out = train({"data.shuffle": False, "dpo.max_num_steps": 2})
    assert len(re.findall(r"train\.jsonl:[12]: sequence length \d+ exceeds", out)) == 2
    assert "no pair of this batch is within the length limit" in out
    assert bullets(out, "num_valid_samples") == [0, 2]
    assert bullets(out, "loss")[1] == pytest.approx(math.log(2), abs=5e-5)


def test_a_run_in_which_no_pair_fits_leaves_no_checkpoint(train: Train, workspace: Path) -> None:
    out = train({"data.max_input_seq_length": 5, "dpo.max_num_steps": 2})
    assert "no checkpoint: the weights are still those of the base model" in out
    assert "validation set `default` has no valid pair" in out
    assert not (workspace / "ckpt").exists()


def test_a_half_masked_batch_is_normalised_by_its_valid_pairs(train: Train, workspace: Path) -> None:
    write_rows(workspace / "train.jsonl", [rank_row(0, chosen="too long " * 300), rank_row(1)])
    out = train({"dpo.max_num_steps": 1, "dpo.sft_loss_weight": 0.5})
    write_rows(workspace / "train.jsonl", [rank_row(1)])
    alone = train({"dpo.max_num_steps": 1, "dpo.sft_loss_weight": 0.5, "policy.train_global_batch_size": 1,
                   "checkpointing.checkpoint_dir": "alone"})  # fmt: skip
    assert bullets(out, "loss") == bullets(alone, "loss")
    assert bullets(out, "sft_loss")[0] > 1
    assert digest(workspace / "ckpt/step_1") == digest(workspace / "alone/step_1")


def test_several_validation_sets_each_have_their_block_and_metrics(train: Train, workspace: Path) -> None:
    write_rows(workspace / "other.jsonl", [rank_row(number) for number in range(200, 205)])
    out = train({
        "data.val_data_paths": {"alpha": "val.jsonl", "beta": "other.jsonl"},
        "checkpointing.metric_name": "val:validation-beta_accuracy",
        "checkpointing.higher_is_better": True,
        "dpo.max_num_steps": 2,
    })  # fmt: skip
    assert "Validation dataset 'beta' loaded with 5 samples." in out
    assert re.findall(r"step (\d) for `(\w+)` set", out) == [
        ("0", "alpha"),
        ("0", "beta"),
        ("2", "alpha"),
        ("2", "beta"),
    ]
    record = info(workspace / "ckpt/step_2")
    # The last batch of five pairs is short; the metrics weigh pairs, not batches.
    assert record["validation-beta_num_valid_samples"] == 5
    assert record["validation-beta_global_valid_seqs"] == 10
    assert record["val:validation-beta_accuracy"] == 1.0
    assert "validation-default_loss" not in record


def test_validation_reads_val_batches_only_and_follows_its_period(train: Train) -> None:
    out = train({
        "dpo.val_batches": 1, "dpo.val_global_batch_size": 3, "dpo.val_period": 3, "dpo.val_at_start": False,
        "dpo.val_at_end": False, "dpo.max_num_steps": 4, "checkpointing.metric_name": "train:loss",
    })  # fmt: skip
    assert re.findall(r"validation at step (\d+)", out) == ["3"]
    assert "Validation num_valid_samples: 3.0000" in out


def test_without_validation_the_checkpoint_has_no_metric_and_a_line_says_so(train: Train, workspace: Path) -> None:
    out = train({"data.validation": None, "dpo.max_num_steps": 2})
    assert "the checkpoint has no validation-default_loss and ranks last" in out
    assert not [key for key in info(workspace / "ckpt/step_2") if key.startswith("val")]


def test_a_wrong_metric_name_stops_the_run_before_its_first_step(train: Train, workspace: Path) -> None:
    with pytest.raises(ConfigError, match="metric loss not found in val metrics"):
        train({"checkpointing.metric_name": "val:loss"})
    assert not (workspace / "ckpt").exists()


def test_the_time_limit_saves_and_stops(train: Train, workspace: Path) -> None:
    out = train({"checkpointing.checkpoint_must_save_by": "00:00:00:00"})
    assert "Timeout has been reached, stopping training early" in out
    assert [path.name for path in (workspace / "ckpt").iterdir()] == ["step_1"]


def test_disabled_checkpoints_leave_nothing(train: Train, workspace: Path) -> None:
    assert (
        "checkpoint" not in train({"checkpointing.enabled": False, "dpo.max_num_steps": 2}).split("SETUP COMPLETE")[1]
    )
    assert not (workspace / "ckpt").exists()


def test_a_loss_that_is_not_a_number_is_printed_and_never_written(train: Train, workspace: Path) -> None:
    out = train({"policy.optimizer.kwargs.lr": 1e30, "policy.scheduler": None, "dpo.max_num_steps": 4})
    assert "  • loss: nan" in out
    assert "the weights hold values that are not finite" in out
    text = (workspace / "ckpt/step_4/training_info.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["validation-default_loss"] is None


def test_a_bad_training_row_stops_the_run_with_its_place(train: Train, workspace: Path) -> None:
    write_rows(workspace / "train.jsonl", [rank_row(1), {"context": []}])
    with pytest.raises(DataError, match=r"train\.jsonl:2: 'completions'"):
        train()


def test_a_tokenizer_of_another_model_is_refused(train: Train, workspace: Path, tiny_folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    small = LlamaConfig(vocab_size=64, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    LlamaForCausalLM(small).save_pretrained(workspace / "small")
    with pytest.raises(ConfigError, match="do not belong together"):
        train({"policy.model_name": "small"})
