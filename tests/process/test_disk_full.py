"""A disk that fills up in the middle of a save: the run says so, and the checkpoint before it is whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.checkpoints import complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.configs import DpoOptions, PreferenceData, build_dpo_config
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits
from nvtrader_rl_dagster.nemo_rl.resume import prepare_resume
from nvtrader_rl_dagster.nemo_rl.runs import RunState
from nvtrader_rl_dagster.nemo_rl.training import TrainingFailedError, TrainingRun, write_config
from tests.process.launching import Workplace, log

#: Room for one checkpoint of the tiny model with its optimizer state (about 25 MB), not for two.
_MEGABYTES = 45


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_MEGABYTES}m", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system cannot be mounted here; it needs root")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=False)


def training_on(disk: Path) -> TrainingRun:
    place = Workplace(disk)
    rows = disk / "train.jsonl"
    rows.write_text(
        "".join(
            f'{{"context": [{{"role": "user", "content": "fund {n}"}}], "completions": ['
            f'{{"rank": 0, "completion": [{{"role": "assistant", "content": "Up {n}."}}]}}, '
            f'{{"rank": 1, "completion": [{{"role": "assistant", "content": "Great {n}!"}}]}}]}}\n'
            for n in range(12)
        )
    )
    directory = place.runs.create("dpo", "local")
    data = PreferenceData(rows, rows, 12, 0, "version", "ledger", 1, 0.2)
    options = DpoOptions(base_model="builtin:tiny", batch_pairs=2, save_period=2)
    write_config(directory, build_dpo_config(options, data, directory.checkpoints, directory.path / "logs").config)
    trainer = Trainer("local", "for a test", sys.executable)
    return TrainingRun(directory, trainer, place.lease, Limits(), threads=1)


def test_the_run_failed_for_want_of_space_and_goes_on_when_there_is_some(small_disk: Path) -> None:
    run = training_on(small_disk)
    with pytest.raises(TrainingFailedError, match="disk_full"):
        list(run.stream())
    record = run.directory.record()
    assert record.state is RunState.FAILED and record.failure is not None
    assert "no room to write" in record.failure["line"]
    (kept,) = complete_checkpoints(run.directory.checkpoints)
    assert kept.step == 2 and kept.manifest["weights_sha256"] == kept.weights_sha256()
    checked = [sys.executable, "-m", "nvtrader_rl_dagster.local_trainer", "check", str(kept.huggingface)]
    assert subprocess.run(checked, capture_output=True, check=False).returncode == 0
    numbers = [row["n"] for row in log(run.directory)]
    assert numbers == list(range(1, len(numbers) + 1)), "the log is whole"

    subprocess.run(["mount", "-o", "remount,size=400m", str(small_disk)], check=True)
    prepare_resume(run.directory, None)
    list(run.stream())
    assert run.directory.record().state is RunState.SUCCEEDED
    assert complete_checkpoints(run.directory.checkpoints)[-1].step == 6
    assert any("step 2" in row["text"] or "step_2" in row["text"] for row in log(run.directory)[len(numbers) :])
    assert not list(run.directory.checkpoints.glob("tmp_*"))
    assert os.path.ismount(small_disk)
