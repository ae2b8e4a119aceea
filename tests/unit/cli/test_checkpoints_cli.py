"""`nvtrader-rl checkpoints` as a person and as a program uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from nvtrader_rl_dagster.cli import app
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.backends import SOURCE_VARIABLE
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunStore

LOSS = "val:validation-default_loss"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["checkpoints", *arguments])


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def directory(home: Path) -> RunDirectory:
    made = RunStore(Home(home).runs).create("dpo", "nemo_rl")
    for step, info in ((9, {LOSS: 0.25}), (10, {LOSS: 0.5}), (11, {})):
        folder = made.checkpoints / f"step_{step}"
        (folder / "policy/weights").mkdir(parents=True)
        (folder / "policy/weights/.metadata").write_bytes(b"")
        (folder / "training_info.json").write_text(json.dumps(info))
        section = {"metric_name": LOSS, "higher_is_better": False}
        (folder / "config.yaml").write_text(yaml.safe_dump({"checkpointing": section}))
    (made.checkpoints / "step_10/hf").mkdir()
    for name in ("config.json", "tokenizer.json"):
        (made.checkpoints / "step_10/hf" / name).write_text("{}")
    return made


def test_the_list_marks_the_best_and_the_newest_and_what_is_exported(directory: RunDirectory) -> None:
    result = run("list", directory.run_id, "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["tracked_metric"] == {"name": LOSS, "higher_is_better": False}
    rows = told["checkpoints"]
    assert [(r["step"], r["value"], r["best"], r["newest"], r["exported"]) for r in rows] == [
        (9, 0.25, True, False, False),
        (10, 0.5, False, False, True),
        (11, None, False, True, False),
    ]
    assert {r["format"] for r in rows} == {"dcp"} and rows[1]["huggingface"].endswith("step_10/hf")
    table = words(run("list", directory.run_id[-6:]).stdout)
    assert f"metric: {LOSS}, lower is better" in table and "10 0.5 dcp step_10/hf" in table
    assert "9 0.25 best dcp not exported" in table and "11 not measured newest dcp" in table


def test_a_run_without_checkpoints_says_so(home: Path) -> None:
    empty = RunStore(Home(home).runs).create("dpo", "local")
    assert "No complete checkpoint" in run("list", empty.run_id).stdout
    assert json.loads(run("list", empty.run_id, "--json").stdout)["checkpoints"] == []
    assert run("export", empty.run_id).exit_code == 1


def test_a_step_that_is_not_there_is_an_error_that_lists_the_others(directory: RunDirectory) -> None:
    result = run("export", directory.run_id, "--step", "12")
    assert result.exit_code == 2 and "there are: 9, 10, 11, newest, best" in words(result.stderr)


def test_a_best_one_that_nobody_measured_is_not_exported(directory: RunDirectory) -> None:
    for step in (9, 10):
        (directory.checkpoints / f"step_{step}/training_info.json").write_text(f'{{"{LOSS}": NaN}}')
    result = run("export", directory.run_id, "--step", "best")
    assert result.exit_code == 1 and "no checkpoint of this run has a measured value" in words(result.stderr)


def test_an_export_without_nemo_rl_says_what_is_missing(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(SOURCE_VARIABLE, str(tmp_path))
    result = run("export", directory.run_id, "--step", "best")
    assert result.exit_code == 1 and SOURCE_VARIABLE in words(result.stderr)
    assert not (directory.checkpoints / "step_9/hf").exists()
