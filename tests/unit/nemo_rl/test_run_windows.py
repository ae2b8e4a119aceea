"""What the state folder knows about windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nvtrader_rl_dagster.feedback.trigger import Outcome, Request, Standing
from nvtrader_rl_dagster.nemo_rl.run_windows import FailedWindow, failed_request, standing_of_runs
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, RunStore, timestamp

LEDGER = "0b6f6e1e"


@pytest.fixture
def runs(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


def run(runs: RunStore, through: int, state: RunState, ended: bool = True, **fields: Any) -> RunDirectory:
    """A run of the window up to `through`; one that has not ended is looked after by this process."""
    about = {"algo": "dpo", "ledger_id": LEDGER, **fields}
    directory = runs.create(about.pop("algo"), "local", trained_through_seq=through, **about)
    directory.update(state=state, ended=timestamp() if ended else None)
    # Ids sort by second and then at random: give each its own second.
    number = len(list(runs.root.iterdir()))
    return RunDirectory(directory.path.rename(runs.root / f"dpo-20260101-0000{number:02}-abcdef"))


def failed(seq: int, ledger_id: str = LEDGER) -> FailedWindow:
    return FailedWindow(f"{ledger_id}:{seq}", "run", "step_failed", f"line {seq}", "", timestamp())


def test_without_runs_nothing_was_requested(runs: RunStore):
    assert standing_of_runs(runs, LEDGER) == Standing()


def test_the_watermark_is_the_furthest_training_and_not_the_latest(runs: RunStore):
    for through in (50, 120, 80):
        run(runs, through, RunState.SUCCEEDED)
    found = standing_of_runs(runs, LEDGER)
    assert (found.trained, found.request.through_seq, found.request.outcome) == (120, 120, Outcome.SPENT)


def test_runs_of_another_store_or_algorithm_do_not_move_it(runs: RunStore):
    run(runs, 50, RunState.SUCCEEDED)
    run(runs, 900, RunState.SUCCEEDED, ledger_id="another store")
    run(runs, 900, RunState.FAILED, algo="sft")
    found = standing_of_runs(runs, LEDGER)
    assert (found.trained, found.request.through_seq) == (50, 50)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (RunState.FAILED, Outcome.FAILED),
        (RunState.STALLED, Outcome.FAILED),
        (RunState.CANCELLED, Outcome.CANCELLED),
        (RunState.SUCCEEDED, Outcome.SPENT),
    ],
)
def test_the_outcome_of_the_furthest_window_is_that_of_its_newest_run(
    runs: RunStore, state: RunState, outcome: Outcome
):
    run(runs, 50, RunState.SUCCEEDED)
    run(runs, 90, RunState.FAILED)
    run(runs, 90, state)
    found = standing_of_runs(runs, LEDGER)
    assert (found.request.through_seq, found.request.outcome, found.busy) == (90, outcome, "")


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING, RunState.STALLED])
def test_a_run_that_somebody_looks_after_is_in_flight_whatever_it_trains(runs: RunStore, state: RunState):
    alive = run(runs, 90, state, ended=False, ledger_id="another store", algo="sft")
    assert standing_of_runs(runs, LEDGER).busy == f"training {alive.record().run_id}"


def test_a_run_whose_processes_are_gone_has_failed(runs: RunStore):
    run(runs, 90, RunState.RUNNING, ended=False).update(creator=None)
    found = standing_of_runs(runs, LEDGER)
    assert (found.request.outcome, found.busy) == (Outcome.FAILED, "")


def test_the_line_of_the_failure_is_handed_on(runs: RunStore):
    run(runs, 90, RunState.FAILED).update(failure={"code": "disk_full", "line": "no space", "advice": ""})
    assert standing_of_runs(runs, LEDGER).request.detail == "disk_full: no space"


def test_the_newest_failed_window_is_kept_and_an_older_one_does_not_replace_it(tmp_path: Path):
    for seq in (60, 90, 70):
        failed(seq).write(tmp_path)
    assert failed_request(tmp_path, LEDGER) == Request(90, Outcome.FAILED, "step_failed: line 90")
    assert len(list(tmp_path.iterdir())) == 1


def test_failed_windows_of_two_stores_are_kept_apart(tmp_path: Path):
    failed(60).write(tmp_path)
    failed(5, "another store").write(tmp_path)
    assert failed_request(tmp_path, LEDGER).through_seq == 60
    assert failed_request(tmp_path, "another store").through_seq == 5
    assert failed_request(tmp_path, "a third one") is None
