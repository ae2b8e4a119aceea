"""`nvtrader-rl prune`: frees space, and never takes what the champion, the trigger or a running step needs."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner, Result

from nvtrader_rl_dagster import files
from nvtrader_rl_dagster.cli import app
from nvtrader_rl_dagster.evaluation.champion import Champion, ChampionStore
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.pruning import execute, plan, size_of
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunState, RunStore, timestamp

DAY = 86_400
NOW = datetime.now(timezone.utc)


class World:
    """A state folder with runs that are `age` days old; run 1 is the oldest."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.store = RunStore(self.home.runs)

    def run(
        self,
        age: float,
        state: RunState = RunState.SUCCEEDED,
        algo: str = "dpo",
        config: str = "",
        ledger: str = "ledger",
        data: str = "",
        through: int | None = None,
    ) -> RunDirectory:
        created = NOW - timedelta(days=age)
        run_id = f"{algo}-{created:%Y%m%d-%H%M%S}-{round(age * 1000):06x}"
        directory = RunDirectory(self.home.runs / run_id)
        (directory.checkpoints / "step_5").mkdir(parents=True)
        (directory.checkpoints / "step_5" / "training_info.json").write_text("{}")
        (directory.checkpoints / "step_5" / "weights").write_bytes(bytes(1000))
        directory.config.write_text(config)
        goes_on = state in (RunState.QUEUED, RunState.RUNNING)
        directory.save(
            RunRecord(
                run_id,
                algo,
                "local",
                state,
                timestamp(created),
                ended=None if goes_on else timestamp(created),
                ledger_id=ledger,
                data_hash=data,
                trained_through_seq=through,
            )
        )
        return directory

    def scores(self, run: RunDirectory, data: str = "", of: str = "") -> Path:
        folder = self.home.evals / f"{run.run_id}-step_5{of}"
        folder.mkdir(parents=True)
        (folder / "score.yaml").write_text(f"data_path: {data}\n")
        return folder

    def publish(self, root: Path, text: str, **manifest: str) -> Path:
        def write(folder: Path) -> dict[str, str]:
            (folder / "rows").write_text(text)
            return manifest

        return files.publish(root, write, ["rows"]).path

    def promote(self, run: RunDirectory, previous: str | None = None) -> str:
        name = f"{run.run_id}/step_5"
        path = str(run.checkpoints / "step_5")
        champion = Champion(name, path, "builtin:tiny", "0" * 64, timestamp(), 0.7, "better", previous)
        ChampionStore(self.home.champion).promote(champion)
        return name

    def left(self) -> set[str]:
        return {run.run_id for run in self.store.all()}


def settle(root: Path, seconds: float = 3_600) -> None:
    """Let time pass since the newest version was published."""
    for file in [root / "current.json", *root.glob("*/manifest.json")]:
        os.utime(file, (time.time() - seconds, time.time() - seconds))


@pytest.fixture
def world(home: Path) -> World:
    return World(home)


def prune(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["prune", *arguments])
    assert result.exit_code == 0, result.output
    return result


def as_json(*arguments: str) -> dict:
    return json.loads(prune(*arguments, "--json").stdout)


def ids(*runs: RunDirectory) -> set[str]:
    return {run.run_id for run in runs}


def test_the_newest_runs_stay_and_the_freed_bytes_are_counted(world: World) -> None:
    runs = [world.run(age) for age in range(14, 0, -1)]
    sizes = sum(size_of(run.path) for run in runs[:4])
    result = as_json()
    assert world.left() == ids(*runs[4:])
    assert {Path(r["path"]).name for r in result["removed"]} == ids(*runs[:4])
    assert result["freed_bytes"] == sizes >= 4_000 and not result["dry_run"]
    assert [p.name for p in world.home.runs.iterdir() if p.name not in world.left()] == []
    assert as_json()["removed"] == []


def test_a_dry_run_says_the_same_and_removes_nothing(world: World) -> None:
    runs = [world.run(age) for age in (3, 2, 1)]
    dry = as_json("--keep", "1", "--dry-run")
    assert world.left() == ids(*runs) and dry["dry_run"]
    assert "would be removed" in prune("--keep", "1", "--dry-run").stdout
    real = as_json("--keep", "1")
    assert (real["removed"], real["freed_bytes"]) == (dry["removed"], dry["freed_bytes"])
    assert world.left() == ids(runs[-1])


def test_people_read_what_went_and_why(world: World) -> None:
    old, _ = world.run(2), world.run(1)
    text = prune("--keep", "1").stdout
    assert str(old.path) in text and "run ended" in text and "1 folders and 0 Dagster runs removed" in text


def test_only_what_is_older_than_the_limit_goes(world: World) -> None:
    old, young, newest = world.run(20), world.run(5), world.run(1)
    as_json("--keep", "1", "--older-than", "10")
    assert world.left() == ids(young, newest) and not old.path.exists()


def test_every_champion_there_was_stays_with_its_scores(world: World) -> None:
    first, plain, second, newest = (world.run(age) for age in (9, 8, 7, 1))
    kept = [world.scores(first), world.scores(second), world.scores(second, of="-serving")]
    gone = world.scores(plain)
    world.promote(second, world.promote(first))
    ChampionStore(world.home.champion).rollback(timestamp(), "worse")
    as_json("--keep", "1")
    assert world.left() == ids(first, second, newest)
    assert all(folder.exists() for folder in kept) and not gone.exists()


def test_the_newest_run_and_the_newest_succeeded_one_stay_for_the_trigger(world: World) -> None:
    older, succeeded = world.run(30), world.run(20)
    failed = [world.run(age, RunState.FAILED) for age in (10, 9, 8)]
    other_store = world.run(40, ledger="another store")
    other_algo = world.run(50, algo="sft")
    as_json("--keep", "1")
    assert world.left() == ids(succeeded, failed[-1], other_store, other_algo)
    assert not older.path.exists()


def test_the_runs_that_trained_furthest_stay(world: World) -> None:
    trained, requested = world.run(9, through=90), world.run(8, RunState.FAILED, through=95)
    world.run(7, through=50)
    newest = world.run(1, through=60)
    as_json("--keep", "1")
    assert world.left() == ids(trained, requested, newest)


def test_a_checkpoint_folder_elsewhere_is_left_alone(world: World, tmp_path: Path) -> None:
    old, _ = world.run(2), world.run(1)
    own = old.checkpoints.rename(tmp_path / "own")
    old.checkpoints.symlink_to(own, target_is_directory=True)
    removed = as_json("--keep", "1")["removed"]
    assert not old.path.exists() and (own / "step_5" / "weights").exists()
    assert removed[0]["bytes"] < 1_000


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING])
def test_a_run_that_has_not_ended_stays_however_old(world: World, state: RunState) -> None:
    going, newest = world.run(99, state), world.run(1)
    as_json("--keep", "1", "--older-than", "1")
    assert world.left() == ids(going, newest)


def test_a_stalled_run_stays_while_it_goes_on(world: World) -> None:
    warned, ended, newest = world.run(9, RunState.STALLED), world.run(8, RunState.STALLED), world.run(1)
    warned.update(ended=None)
    as_json("--keep", "1")
    assert world.left() == ids(warned, newest) and not ended.path.exists()


def test_a_run_that_a_kept_one_started_from_stays(world: World) -> None:
    base = world.run(9)
    middle = world.run(8, config=f"policy:\n  model_name: {base.checkpoints}/step_5\n")
    unrelated = world.run(7)
    newest = world.run(1, config=f"policy:\n  model_name: {middle.checkpoints}/step_5\n")
    as_json("--keep", "1")
    assert world.left() == ids(base, middle, newest) and not unrelated.path.exists()


def test_versions_that_no_kept_run_score_or_pointer_names_go(world: World) -> None:
    pairs, rank = world.home.pairs, world.home.dataset("nemo_rl")
    pair_versions = [world.publish(pairs, f"pairs {n}") for n in range(6)]
    versions = [world.publish(rank, f"rows {n}", pairs_version=pair_versions[n].name) for n in range(6)]
    gone = world.run(9, config=f"data_path: {versions[0]}/train.jsonl")
    scored, _ = world.run(3), world.run(2, RunState.RUNNING, config=f"data_path: {versions[1]}/train.jsonl")
    world.scores(scored, data=f"{versions[2]}/validation.jsonl")
    world.run(1, RunState.QUEUED, data=versions[3].name)  # the config is not written yet
    settle(pairs)
    settle(rank)
    as_json("--keep", "1")
    assert not gone.path.exists()
    assert [v.exists() for v in versions] == [False, True, True, True, False, True]
    assert [v.exists() for v in pair_versions] == [False, True, True, True, False, True]
    assert files.current(rank) is not None and files.current(pairs) is not None


def test_a_version_that_was_current_a_minute_ago_stays(world: World) -> None:
    root = world.home.dataset("trl")
    old, _ = world.publish(root, "old"), world.publish(root, "new")
    settle(root, seconds=60)
    as_json()
    assert old.exists()


def test_young_unused_versions_stay_below_the_limit(world: World) -> None:
    root = world.home.pairs
    old, _ = world.publish(root, "old"), world.publish(root, "new")
    settle(root, seconds=5 * DAY)
    as_json("--older-than", "6")
    assert old.exists()
    as_json("--older-than", "4")
    assert not old.exists()


def test_scores_of_a_run_that_is_gone_go(world: World) -> None:
    run, other = world.run(2), world.run(1)
    orphan, kept = world.scores(run), world.scores(other)
    shutil.rmtree(run.path)
    by_hand = world.home.evals / "my notes"
    by_hand.mkdir()
    as_json("--older-than", "1")
    assert orphan.exists()
    as_json()
    assert not orphan.exists() and kept.exists() and by_hand.exists()


def test_a_prune_that_was_killed_half_way_is_finished_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [world.run(age) for age in (5, 4, 3, 2, 1)]
    removals = plan(world.home, keep=2)
    real, calls = shutil.rmtree, []

    def killed(path: Path) -> None:
        calls.append(path)
        if len(calls) == 2:
            (path / "run.json").unlink()
            raise KeyboardInterrupt
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            execute(removals)
    # No run is listed that is only half there.
    assert all(run.record() and (run.checkpoints / "step_5" / "weights").exists() for run in world.store.all())
    assert len(world.left()) == 3
    assert [p.name[:8] for p in world.home.runs.iterdir() if p.name not in world.left()] == [".pruned-"]
    why = [r["why"] for r in as_json("--keep", "2")["removed"]]
    assert "left by an interrupted prune" in why
    assert {p.name for p in world.home.runs.iterdir()} == ids(*runs[-2:])


def test_two_prunes_at_once_do_not_disturb_each_other(world: World) -> None:
    for age in (3, 2, 1):
        world.run(age)
    removals = plan(world.home, keep=1)
    assert execute(removals) > 0 and execute(removals) == 0


def test_a_publication_that_was_killed_long_ago_leaves_nothing(world: World) -> None:
    world.publish(world.home.pairs, "rows")
    old, new = world.home.pairs / ".staging-old", world.home.pairs / ".staging-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (time.time() - 2 * DAY, time.time() - 2 * DAY))
    as_json()
    assert not old.exists() and new.exists()


def test_an_empty_home_has_nothing_to_remove(home: Path) -> None:
    assert as_json("--older-than", "0") == {"removed": [], "dagster_runs": 0, "freed_bytes": 0, "dry_run": False}
    assert not home.exists()


@dg.asset
def materialized() -> dg.MaterializeResult:
    return dg.MaterializeResult()


@dg.asset(output_required=False)
def observed():  # type: ignore[no-untyped-def]
    yield dg.AssetObservation("observed")


@dg.op
def do_nothing() -> None: ...


@dg.job
def small_job() -> None:
    do_nothing()


def test_old_dagster_runs_go_and_what_the_asset_pages_show_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world.home.dagster_home
    folder.mkdir(parents=True)
    (folder / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        old = dg.materialize([materialized, observed], instance=instance).run_id
        materialization = dg.materialize([materialized], instance=instance).run_id
        observation = dg.materialize([observed], instance=instance).run_id
        requested = small_job.execute_in_process(instance=instance, tags={"nvtrader/window": "l:50"}).run_id
        parent = small_job.execute_in_process(instance=instance).run_id
        going = instance.create_run_for_job(small_job, parent_run_id=parent, root_run_id=parent).run_id
        old_job = small_job.execute_in_process(instance=instance).run_id
        newest = small_job.execute_in_process(instance=instance).run_id

        def left() -> set[str]:
            return {record.dagster_run.run_id for record in instance.get_run_records()}

        everything = left()
        assert as_json()["dagster_runs"] == 0  # only with a limit
        assert as_json("--older-than", "1")["dagster_runs"] == 0
        assert as_json("--older-than", "0", "--dry-run")["dagster_runs"] == 2 and left() == everything
        shard = folder / "history" / "runs" / f"{old}.db"
        logs = folder / "storage" / old
        assert shard.exists() and logs.exists()
        result = as_json("--older-than", "0")
        assert result["dagster_runs"] == 2 and result["freed_bytes"] > 50_000
        assert left() == {materialization, observation, requested, parent, going, newest}
        assert everything - left() == {old, old_job}
        assert not shard.exists() and not logs.exists()
        event = instance.get_latest_materialization_event(materialized.key)
        assert event is not None and event.run_id == materialization
