"""`launch_run` with a configuration of somebody's own."""

from __future__ import annotations

import json
import time
from pathlib import Path

import yaml

from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl import get_run, launch_run
from nvtrader_rl_dagster.nemo_rl.runs import RunState, RunStore
from tests.preflight_cases import lines, pair


def test_a_small_configuration_of_somebody_s_own_trains(home: Path, tmp_path: Path) -> None:
    """Only what the embedded trainer reads, split over a file and its parent, with an interpolation."""
    train = tmp_path / "train.jsonl"
    train.write_bytes(lines(*(pair(number) for number in range(4))))
    parent = {
        "dpo": {
            "max_num_epochs": 1,
            "max_num_steps": 2,
            "val_period": 0,
            "val_batches": 1,
            "val_global_batch_size": 1,
            "val_micro_batch_size": 1,
            "val_at_start": False,
            "val_at_end": False,
            "seed": 1,
            "reference_policy_kl_penalty": 0.1,
            "preference_average_log_probs": False,
            "sft_average_log_probs": False,
            "preference_loss_weight": 1.0,
            "sft_loss_weight": 0.0,
        },
        "policy": {
            "model_name": "builtin:tiny",
            "tokenizer": {"name": "${..model_name}"},
            "precision": "float32",
            "train_global_batch_size": 2,
            "train_micro_batch_size": 1,
            "max_total_sequence_length": 256,
            "max_grad_norm": 1.0,
            "optimizer": {"name": "torch.optim.AdamW", "kwargs": {"lr": 1e-4}},
        },
    }
    child = {
        "defaults": "parent.yaml",
        "data": {
            "max_input_seq_length": "${policy.max_total_sequence_length}",
            "shuffle": False,
            "train": {"dataset_name": "PreferenceDataset", "data_path": str(train)},
            "validation": None,
        },
        "checkpointing": {
            "enabled": True,
            "metric_name": None,
            "higher_is_better": False,
            "keep_top_k": 1,
            "save_period": 10,
            "checkpoint_must_save_by": None,
            "save_optimizer": False,
        },
        "logger": {},
    }
    (tmp_path / "parent.yaml").write_text(yaml.safe_dump(parent))
    (tmp_path / "child.yaml").write_text(yaml.safe_dump(child))
    record = launch_run("dpo", tmp_path / "child.yaml", backend="local")
    deadline = time.monotonic() + 120
    while not record.ended_for_good and time.monotonic() < deadline:
        time.sleep(0.2)
        record = get_run(record.run_id)
    assert record.state is RunState.SUCCEEDED, record
    assert json.loads((RunStore(Home(home).runs).get(record.run_id).path / "preflight.json").read_text())["steps"] == 2
