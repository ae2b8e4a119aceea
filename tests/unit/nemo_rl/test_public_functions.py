"""The functions that `nvtrader_rl_dagster.nemo_rl` offers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nvtrader_rl_dagster import nemo_rl
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.cancel import cancel_request
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunState, RunStore

ROOT = Path(__file__).resolve().parents[3]


def make_run(home: Path, run_id: str, state: RunState = RunState.SUCCEEDED) -> RunDirectory:
    directory = RunDirectory(Home(home).runs / run_id)
    directory.path.mkdir(parents=True)
    created = "2026-01-01T00:00:00.000Z"
    ended = None if state in (RunState.QUEUED, RunState.RUNNING) else created
    directory.save(RunRecord(run_id, run_id.split("-")[0], "local", state, created, ended=ended))
    return directory


RUNS = {
    "dpo-20260101-000000-aaaaaa": RunState.SUCCEEDED,
    "sft-20260102-000000-bbbbbb": RunState.FAILED,
    "dpo-20260103-000000-cccccc": RunState.FAILED,
    "dpo-20260104-000000-dddddd": RunState.RUNNING,
}


@pytest.fixture
def runs(home: Path) -> Path:
    for run_id, state in RUNS.items():
        make_run(home, run_id, state)
    return home


def test_the_package_itself_imports_nothing_so_that_the_supervisor_starts_fast() -> None:
    code = (
        "import __future__, typing, sys; before = set(sys.modules)\n"
        "import nvtrader_rl_dagster.nemo_rl\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "['nvtrader_rl_dagster', 'nvtrader_rl_dagster.nemo_rl']"


def test_every_public_name_is_there_and_no_other() -> None:
    assert nemo_rl.__all__ == ["ALGOS", "cancel_run", "get_run", "launch_run", "list_runs", "tail_log"]
    for name in nemo_rl.__all__:
        assert getattr(nemo_rl, name) is getattr(nemo_rl, name) and name in dir(nemo_rl)
    with pytest.raises(AttributeError, match="no attribute 'start_run'"):
        _ = nemo_rl.start_run


def test_each_algorithm_names_its_script_of_nemo_rl() -> None:
    scripts = {name: algorithm.script for name, algorithm in nemo_rl.ALGOS.items()}
    assert scripts == {
        "sft": "run_sft.py",
        "dpo": "run_dpo.py",
        "rm": "run_rm.py",
        "grpo": "run_grpo.py",
        "ppo": "run_grpo.py",
        "dapo": "run_grpo.py",
        "gdpo": "run_grpo.py",
        "distillation": "run_distillation.py",
        "eval": "run_eval.py",
    }
    assert [a.name for a in nemo_rl.ALGOS.values()] == list(nemo_rl.ALGOS)


def test_runs_are_listed_newest_first_and_narrowed(runs: Path) -> None:
    def ids(**narrowed: object) -> list[str]:
        return [record.run_id[-6:] for record in nemo_rl.list_runs(**narrowed)]  # type: ignore[arg-type]

    assert ids() == ["dddddd", "cccccc", "bbbbbb", "aaaaaa"]
    assert ids(algo="dpo") == ["dddddd", "cccccc", "aaaaaa"]
    assert ids(state="failed") == ids(state=RunState.FAILED) == ["cccccc", "bbbbbb"]
    assert ids(algo="dpo", state="failed", limit=5) == ["cccccc"]
    assert ids(limit=2) == ["dddddd", "cccccc"] and ids(limit=0) == []


@pytest.mark.parametrize(
    ("narrowed", "message"),
    [
        ({"algo": "dpoo"}, "algo='dpoo' must be one of: sft, dpo"),
        ({"state": "done"}, "state='done' must be one of: queued, running"),
        ({"limit": -1}, "limit=-1"),
    ],
)
def test_what_cannot_be_listed_is_named_with_the_choices(runs: Path, narrowed: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nemo_rl.list_runs(**narrowed)


def test_an_empty_home_has_no_runs(home: Path) -> None:
    assert nemo_rl.list_runs() == []


def test_another_home_can_be_given(runs: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "other", "rm-20260105-000000-eeeeee")
    assert [r.run_id for r in nemo_rl.list_runs(home=tmp_path / "other")] == ["rm-20260105-000000-eeeeee"]
    assert nemo_rl.get_run("rm-20260105-000000-eeeeee", home=str(tmp_path / "other")).algo == "rm"
    with pytest.raises(KeyError):
        nemo_rl.get_run("rm-20260105-000000-eeeeee")


@pytest.mark.parametrize("run_id", ["dpo-20260101-000000-ffffff", "../..", ""])
def test_an_id_that_is_no_run_is_a_key_error_everywhere(runs: Path, run_id: str) -> None:
    for function in (nemo_rl.get_run, nemo_rl.cancel_run, nemo_rl.tail_log):
        with pytest.raises(KeyError, match="no training run"):
            function(run_id)


def test_a_cancel_returns_at_once_and_a_second_one_changes_nothing(runs: Path) -> None:
    run_id = "dpo-20260104-000000-dddddd"
    folder = RunStore(Home(runs).runs).get(run_id).path
    assert nemo_rl.cancel_run(run_id, by="anna").state is RunState.RUNNING
    first = (folder / "cancel.json").read_bytes()
    nemo_rl.cancel_run(run_id, by="ben")
    assert (folder / "cancel.json").read_bytes() == first
    request = cancel_request(folder)
    assert request is not None and request["by"] == "anna"


def test_a_run_that_succeeded_stays_as_it_is_when_cancelled(runs: Path) -> None:
    directory = RunStore(Home(runs).runs).get("dpo-20260101-000000-aaaaaa")
    before = directory.record()
    assert nemo_rl.cancel_run(directory.run_id) == before == directory.record()
    assert cancel_request(directory.path) is None


def test_a_failed_run_that_is_cancelled_is_not_resumed_any_more(runs: Path) -> None:
    directory = RunStore(Home(runs).runs).get("dpo-20260103-000000-cccccc")
    before = directory.record()
    assert nemo_rl.cancel_run(directory.run_id, by="anna") == before == directory.record()
    assert cancel_request(directory.path) is not None


def test_a_log_is_followed_from_page_to_page(runs: Path) -> None:
    directory = RunStore(Home(runs).runs).get("dpo-20260104-000000-dddddd")
    assert nemo_rl.tail_log(directory.run_id).lines == []
    with directory.log.open("w") as log:
        for n in range(1, 6):
            log.write(json.dumps({"n": n, "ts": "t", "text": f"\x1b[1mline {n}\x1b[0m"}) + "\n")
    assert [line.text for line in nemo_rl.tail_log(directory.run_id, max_lines=2).lines] == ["line 4", "line 5"]
    page = nemo_rl.tail_log(directory.run_id, since_line=0, max_lines=2)
    assert [line.n for line in page.lines] == [1, 2] and page.total == 5
    assert [line.n for line in nemo_rl.tail_log(directory.run_id, page.next_line).lines] == [3, 4, 5]
