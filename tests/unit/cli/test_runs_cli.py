"""`nvtrader-rl runs` as a person and as a program uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nvtrader_rl_dagster.cli import app
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, RunStore, timestamp
from nvtrader_rl_dagster.nemo_rl.supervised import SupervisedProcess

FAILURE = {"code": "disk_full", "line": "No space left [on] device", "advice": "Free space, then retry."}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["runs", *arguments])


def as_json(*arguments: str) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def words(text: str) -> str:
    """Without the line breaks that a narrow terminal gets."""
    return " ".join(text.split())


def append(directory: RunDirectory, *texts: str) -> None:
    n = len(directory.log.read_text().splitlines()) if directory.log.exists() else 0
    with directory.log.open("a") as log:
        for i, text in enumerate(texts, n + 1):
            log.write(json.dumps({"n": i, "ts": "2026-01-01T00:00:00.000Z", "text": text}) + "\n")


@pytest.fixture
def store(home: Path) -> RunStore:
    return RunStore(Home(home).runs)


@pytest.fixture
def failed(store: RunStore) -> RunDirectory:
    directory = store.create("dpo", "nemo_rl", data_hash="d" * 32)
    directory.config.write_text("policy: {}\n")
    append(directory, *(f"line {n}" for n in range(1, 20)), "5%\r\x1b[31m100% [done]\x1b[0m")
    rows = [(1, "train", None, 0.9, None), (2, "train", None, 0.5, None), (2, "validation", "default", None, "nan")]
    with directory.metrics.open("w") as metrics:
        for step, split, name, value, flag in rows:
            row = {"step": step, "split": split, "set": name, "name": "loss", "value": value}
            metrics.write(json.dumps({**row, **({"flag": flag} if flag else {})}) + "\n")
    for step in (9, 10):
        (directory.checkpoints / f"step_{step}").mkdir(parents=True)
        (directory.checkpoints / f"step_{step}" / "training_info.json").write_text("{}")
    (directory.checkpoints / "tmp_step_11").mkdir()
    directory.update(state=RunState.FAILED, ended=timestamp(), exit_code=1, failure=FAILURE)
    return directory


def test_the_list_is_narrowed_and_says_why_a_run_failed(store: RunStore, failed: RunDirectory) -> None:
    other = store.create("sft", "local")
    found = as_json("list")["runs"]
    assert {r["run_id"]: r["state"] for r in found} == {failed.run_id: "failed", other.run_id: "queued"}
    assert [r["run_id"] for r in as_json("list", "--algo", "sft")["runs"]] == [other.run_id]
    assert [r["run_id"] for r in as_json("list", "--state", "failed")["runs"]] == [failed.run_id]
    assert len(as_json("list", "--limit", "1")["runs"]) == 1
    table = run("list").stdout
    assert failed.run_id in table and other.run_id in table and "disk_full" in table


def test_without_runs_the_list_says_where_it_looked(home: Path) -> None:
    assert as_json("list") == {"runs": []}
    assert str(Home(home).runs) in run("list").stdout.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--algo", "dpoo"], "must be one of: sft, dpo"),
        (["list", "--state", "done"], "queued"),
        (["show", "dpo-20200101-000000-000000"], "no training run"),
        (["show", ""], "no training run"),
        (["tail", "nothing"], "runs list"),
        (["cancel", "nothing"], "no training run"),
    ],
)
def test_bad_input_is_one_clear_line(failed: RunDirectory, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code in (1, 2) and message in words(result.output)
    assert "Traceback" not in result.output


def test_show_prints_record_checkpoints_metrics_failure_and_last_lines(failed: RunDirectory) -> None:
    text = run("show", failed.run_id).stdout
    folded = "".join(text.split())
    for part in ("state", "failed", "checkpoint at step 10", "disk_full", *FAILURE.values(), "line 19", "100% [done]"):
        assert part in text
    assert str(failed.config) in folded and str(failed.checkpoints / "step_9") in folded
    assert "train/loss" in text and "0.5 (step 2)" in text and "nan (step 2)" in text
    assert "\x1b" not in text and "line 1\n" not in text and "tmp_step_11" not in text


def test_show_as_json_holds_the_same(failed: RunDirectory) -> None:
    shown = as_json("show", failed.run_id)
    assert shown["run"]["failure"] == FAILURE and shown["config"] == str(failed.config)
    assert [c["step"] for c in shown["checkpoints"]] == [9, 10]
    assert shown["metrics"] == {
        "train/loss": {"step": 2, "value": 0.5},
        "validation/default/loss": {"step": 2, "value": "nan"},
    }
    assert shown["log"]["lines"] == 20 and shown["log"]["last"][-1]["text"] == "100% [done]"


def test_a_part_of_the_id_is_enough_while_only_one_run_has_it(store: RunStore, failed: RunDirectory) -> None:
    assert as_json("show", failed.run_id[-6:])["run"]["run_id"] == failed.run_id
    store.create("dpo", "local")
    result = run("show", "dpo")
    assert result.exit_code == 1 and "2 runs" in result.output and failed.run_id in result.output.replace("\n", "")


def test_tail_prints_the_last_lines_as_a_terminal_would(failed: RunDirectory) -> None:
    assert run("tail", "-n", "2", failed.run_id).stdout == "line 19\n100% [done]\n"
    assert run("tail", failed.run_id).stdout.startswith("line 1\n")
    assert run("tail", "-f", "-n", "0", failed.run_id).stdout == ""


def test_tail_follows_until_the_run_has_ended_and_misses_no_line(store: RunStore) -> None:
    directory = store.create("dpo", "local")
    directory.update(state=RunState.RUNNING)
    append(directory, "before")

    def train() -> None:
        for n in range(5):
            time.sleep(0.1)
            append(directory, f"step {n}")
        # Stalled is no end while the trainer goes on.
        directory.update(state=RunState.STALLED)
        time.sleep(0.5)
        append(directory, *(f"last {n}" for n in range(2_500)))
        directory.update(state=RunState.SUCCEEDED, ended=timestamp())

    trainer = threading.Thread(target=train)
    trainer.start()
    result = run("tail", "--follow", directory.run_id[-6:])
    trainer.join()
    assert result.exit_code == 0
    expected = ["before", *(f"step {n}" for n in range(5)), *(f"last {n}" for n in range(2_500))]
    assert result.stdout.splitlines() == expected


def test_following_a_run_whose_processes_were_killed_ends_with_the_remedy(store: RunStore) -> None:
    directory = store.create("dpo", "local")
    directory.update(state=RunState.RUNNING, creator=None)
    append(directory, "last words")
    result = run("tail", "-f", directory.run_id)
    assert result.exit_code == 1 and result.stdout == "last words\n"
    assert "runs cancel --wait" in words(result.stderr)


def test_ctrl_c_ends_following_quietly(home: Path, store: RunStore) -> None:
    directory = store.create("dpo", "local")
    append(directory, "hello")
    command = [sys.executable, "-u", "-m", "nvtrader_rl_dagster.cli", "runs", "tail", "-f", directory.run_id]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    assert child.stdout is not None and child.stdout.readline() == "hello\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (130, "", "")


def test_cancel_asks_once_and_returns(store: RunStore) -> None:
    directory = store.create("dpo", "local")
    assert "will be stopped" in run("cancel", directory.run_id).stdout
    first = (directory.path / "cancel.json").read_bytes()
    assert run("cancel", directory.run_id).exit_code == 0
    assert (directory.path / "cancel.json").read_bytes() == first


def test_waiting_for_a_cancel_returns_when_nothing_of_the_run_is_left(home: Path, store: RunStore) -> None:
    directory = store.create("dpo", "local")
    directory.config.write_text("policy:\n  model_name: builtin:tiny\n")
    command = [sys.executable, "-c", "import time\nprint('up', flush=True)\ntime.sleep(600)"]
    process = SupervisedProcess(directory, command, os.environ, Home(home).lease, Limits(grace=2.0))
    try:
        wait_for(lambda: directory.log.exists() and b"up" in directory.log.read_bytes())
        trainer = json.loads((directory.path / "process.json").read_text())["trainer"]["pid"]
        result = run("cancel", "--wait", directory.run_id)
        assert (result.exit_code, directory.record().state) == (0, RunState.CANCELLED), result.output
        assert not Path(f"/proc/{trainer}").exists()
        assert "is cancelled" in words(result.stdout)
        assert run("cancel", "--wait", directory.run_id).exit_code == 0
    finally:
        process.stop()


def test_waiting_for_a_run_whose_processes_were_killed_ends_as_well(store: RunStore) -> None:
    directory = store.create("dpo", "local")
    directory.update(state=RunState.RUNNING, creator=None)
    result = run("cancel", "--wait", directory.run_id)
    assert (result.exit_code, directory.record().state) == (0, RunState.CANCELLED), result.output


def test_waiting_for_a_run_that_had_ended_otherwise_fails(failed: RunDirectory) -> None:
    before = directory_state(failed)
    result = run("cancel", "--wait", failed.run_id)
    assert result.exit_code == 1 and "is failed" in words(result.stdout)
    assert run("cancel", failed.run_id).exit_code == 0 and directory_state(failed) == before


def directory_state(directory: RunDirectory) -> bytes:
    return (directory.path / "run.json").read_bytes()


def wait_for(condition, seconds: float = 20.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
