"""The trainer as a process: exit codes, the model command, and SIGKILL in the middle of a save."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainer_helpers import CONFIG, merged, start_trainer

WEIGHTS = Path("policy/weights/model/consolidated")


def write_config(folder: Path, changes: dict[str, object]) -> str:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(merged(CONFIG, changes)))
    return str(path)


def test_a_run_without_a_full_batch_exits_0_without_a_checkpoint(workspace: Path) -> None:
    process = start_trainer("dpo", "--config", write_config(workspace, {}), "policy.train_global_batch_size=100")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Overrides: ['policy.train_global_batch_size=100']" in out
    assert "8 pairs do not fill one batch of 100" in out
    assert not (workspace / "ckpt").exists()


def test_an_error_is_a_traceback_and_exit_code_1(workspace: Path) -> None:
    process = start_trainer("dpo", "--config", write_config(workspace, {"policy.model_name": "org/some-model"}))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback (most recent call last)" in err
    assert "No hub is contacted" in err


@pytest.mark.slow
def test_two_processes_build_one_model_and_print_one_json_line_each(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("NVTRADER_RL_CACHE", str(tmp_path))
    outputs = [
        process.communicate(timeout=120) for process in [start_trainer("model", "builtin:tiny") for _ in range(2)]
    ]
    lines = [json.loads(out) for out, _ in outputs]
    assert lines[0] == lines[1]
    assert lines[0]["name"] == "builtin:tiny"
    assert [str(path) for path in tmp_path.iterdir()] == [lines[0]["path"]]
    assert lines[0]["parameters"] == 2016960
    assert len(lines[0]["sha256"]) == 64


@pytest.mark.slow
def test_sigkill_in_the_middle_of_a_save_leaves_the_previous_checkpoint(workspace: Path) -> None:
    changes = {
        "checkpointing.save_period": 1,
        "dpo.max_num_steps": 100000,
        "dpo.max_num_epochs": 100000,
        "dpo.val_period": 0,
    }
    config = write_config(workspace, changes)
    unfinished: list[Path] = []
    for _ in range(5):  # a kill may come just after the rename; then the next try meets a later save
        process = start_trainer("dpo", "--config", config)
        known = set((workspace / "ckpt").glob("step_*"))
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            # At least one complete save by this process, then a new one that has begun to write weights.
            if set((workspace / "ckpt").glob("step_*")) - known and list(
                (workspace / "ckpt").glob("tmp_step_*/policy/weights/model/consolidated/*")
            ):
                break
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        unfinished = list((workspace / "ckpt").glob("tmp_step_*"))
        if unfinished:
            break
    assert unfinished, "no kill met a save"
    latest = max(int(path.name.removeprefix("step_")) for path in (workspace / "ckpt").glob("step_*"))
    from safetensors.torch import load_file

    assert load_file(workspace / "ckpt" / f"step_{latest}" / WEIGHTS / "model.safetensors")
    resumed = start_trainer("dpo", "--config", config, f"dpo.max_num_steps={latest + 1}")
    out, err = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, err
    assert f"Removing incomplete checkpoint ckpt/{unfinished[0].name}" in out
    assert f"Resuming from ckpt/step_{latest} after step {latest}" in out
    assert (workspace / "ckpt" / f"step_{latest + 1}").is_dir()
    assert not list((workspace / "ckpt").glob("*tmp*"))
