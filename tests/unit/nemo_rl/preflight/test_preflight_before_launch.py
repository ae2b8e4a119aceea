"""What a refusal does to a run: nothing is launched, the record says why, the report is in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from looking import changed, complete, make_tree, save_checkpoint
from typer.testing import CliRunner

from nvtrader_rl_dagster.assets.checkpoints import dpo_checkpoint
from nvtrader_rl_dagster.cli import app
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl import launch_run
from nvtrader_rl_dagster.nemo_rl.launch_files import ProcessRecord
from nvtrader_rl_dagster.nemo_rl.preflight.before_launch import PreflightError
from nvtrader_rl_dagster.nemo_rl.resume import CheckpointMismatchError
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, RunStore
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.gb10 import GB10Resource
from tests.loop import clear_preferences, import_into, run_job
from tests.preflight_cases import lines, ranks


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """A run without folders of its own."""
    good = complete(tmp_path, "dpo")
    return changed(good, {"checkpointing.checkpoint_dir": ..., "logger.log_dir": ...})


def only_run(home: Path) -> RunDirectory:
    (directory,) = RunStore(Home(home).runs).all()
    return directory


def test_a_refused_run_is_failed_and_nothing_was_launched(home: Path, config: dict[str, Any]) -> None:
    with pytest.raises(PreflightError, match=r"refused \(zero_steps\): 20 training rows do not fill"):
        launch_run("dpo", changed(config, {"policy.train_global_batch_size": 128}), backend="local")
    directory = only_run(home)
    record = directory.record()
    assert record.state is RunState.FAILED and record.ended is not None and record.failure is not None
    assert record.failure["code"] == "zero_steps" and "at most 20" in record.failure["advice"]
    assert ProcessRecord.read(directory.path) is None and not directory.log.exists()
    report = json.loads((directory.path / "preflight.json").read_text())
    assert report["accepted"] is False and report["steps"] == 0
    assert [f["code"] for f in report["findings"] if f["level"] == "refuse"] == ["zero_steps"]


def test_the_first_refusal_names_the_failure_and_the_others_are_mentioned(
    home: Path, config: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "ties.jsonl"
    file.write_bytes(lines(ranks(1, 1), ranks(2, 2)))
    broken = changed(config, {"data.train.data_path": str(file), "checkpointing.metric_name": "loss"})
    with pytest.raises(PreflightError, match="and 2 more"):
        launch_run("dpo", broken, backend="local")
    failure = only_run(home).record().failure
    assert failure is not None and failure["code"] == "tie"
    assert "Refused as well: zero_steps, metric_name; see preflight.json" in failure["advice"]


def test_checkpoints_of_another_training_need_a_fork(home: Path, config: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    other = changed(config, {"policy.model_name": "other", "checkpointing.checkpoint_dir": str(folder)})
    save_checkpoint(folder, 1, other, epoch=0, step=0)
    run = changed(config, {"checkpointing.checkpoint_dir": str(folder), "policy.train_global_batch_size": 128})
    with pytest.raises(CheckpointMismatchError):
        launch_run("dpo", run, backend="local")
    assert list(RunStore(Home(home).runs).all()) == []
    for asked in ({"resume": True}, {"start": "fork"}):
        with pytest.raises(PreflightError, match="zero_steps"):  # and not for its checkpoints
            launch_run("dpo", run, backend="local", **asked)
    same = changed(other, {"policy.model_name": config["policy"]["model_name"]})
    save_checkpoint(folder, 2, same, epoch=0, step=0)
    with pytest.raises(PreflightError, match="checkpoint_folder_used"):
        launch_run("dpo", same, backend="local", start="new")


def test_warnings_become_notes_of_the_run(home: Path, config: dict[str, Any]) -> None:
    same = config["data"]["train"]["data_path"]
    changes = {"data.validation.data_path": same, "policy.train_global_batch_size": 128}
    with pytest.raises(PreflightError):
        launch_run("dpo", changed(config, changes), backend="local")
    assert any(note.startswith("overlap: 20 of 20 prompts") for note in only_run(home).record().notes)


def test_a_dagster_step_fails_with_the_report(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_into(home, clear_preferences(tmp_path / "feedback.jsonl"))
    monkeypatch.setenv("NVTRADER_RL_BASE_MODEL", str(tmp_path / "no_model"))
    with dg.DagsterInstance.ephemeral() as instance:
        assert run_job(instance, assets=["preference_pairs", "nemo_rl_dataset"]).success
        result = dg.materialize(
            [dpo_checkpoint],
            resources={"gb10": GB10Resource(artifacts=ArtifactStore())},
            run_config={"ops": {"dpo_checkpoint": {"config": {"base_model": "auto"}}}},
            instance=instance,
            raise_on_error=False,
        )
    (failure,) = result.get_step_failure_events()
    assert "model_missing" in str(failure.event_specific_data)
    record = only_run(home).record()
    assert record.state is RunState.FAILED and record.failure is not None
    assert record.failure["code"] == "model_missing"


def test_the_console_prints_the_report_and_fails_with_a_refusal(
    home: Path, config: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(config))
    run = CliRunner()
    done = run.invoke(app, ["preflight", "dpo", str(file), "--backend", "local"])
    assert done.exit_code == 0 and "preflight of dpo with local: accepted" in done.output
    assert "train: 20 rows" in done.output and "steps: 1" in done.output
    file.write_text(yaml.safe_dump(changed(config, {"dpo.max_num_steps": 0})))
    done = run.invoke(app, ["preflight", "dpo", str(file), "--backend", "local", "--json"])
    report = json.loads(done.output)
    assert done.exit_code == 1 and report["accepted"] is False
    assert [f["code"] for f in report["findings"] if f["level"] == "refuse"] == ["zero_steps"]
    done = run.invoke(app, ["preflight", "dpo", str(file), "--backend", "local", "--resume"])
    assert done.exit_code == 1 and "refuse zero_steps" in done.output
    assert run.invoke(app, ["preflight", "dppo", str(file)]).exit_code == 2
    assert run.invoke(app, ["preflight", "dpo", str(tmp_path / "none.yaml")]).exit_code == 2


def test_the_console_says_when_the_trainer_is_not_there(
    home: Path, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVTRADER_NEMORL_SRC", str(make_tree(tmp_path / "tree")))
    monkeypatch.setenv("NVTRADER_NEMORL_PYTHON", str(tmp_path / "no-python"))
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(config))
    done = CliRunner().invoke(app, ["preflight", "dpo", str(file), "--backend", "nemo_rl", "--json"])
    assert done.exit_code == 1 and json.loads(done.output)["findings"][0]["code"] == "trainer"
