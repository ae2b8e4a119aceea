"""The weekly look at the champion: scored again by the real scorer on today's held-out pairs, and judged by a check."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from nvtrader_rl_dagster.assets.champion_scores import scores_file
from nvtrader_rl_dagster.assets.checks import champion_still_better
from nvtrader_rl_dagster.definitions import defs
from nvtrader_rl_dagster.evaluation.champion import Champion, ChampionStore
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from tests.loop import clear_preferences, failed_checks, import_into, metadata, run_job

ROLLBACK = "nvtrader-rl champion rollback"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def evaluate_champion(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    job = defs.resolve_job_def("champion_evaluation")
    return job.execute_in_process(instance=instance, raise_on_error=False)


def champion_of(home: Path) -> Champion:
    found = ChampionStore(Home(home).champion).current()
    assert found is not None
    return found


def check(home: Path) -> dg.AssetCheckResult:
    result = champion_still_better(artifacts=ArtifactStore(root=str(home)))
    assert isinstance(result, dg.AssetCheckResult)
    return result


def write_scores(home: Path, accuracy: float, interval: tuple[float, float]) -> None:
    scores: dict[str, Any] = {
        "scored": "2026-02-01T06:00:00.000Z",
        "evaluation": {"prompts": 40, "candidate": {"accuracy": accuracy, "interval": interval}},
    }
    file = scores_file(ArtifactStore(root=str(home)), champion_of(home))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(scores))


def test_the_champion_is_scored_again_on_the_held_out_pairs_of_today(
    copied: Path, instance: dg.DagsterInstance
) -> None:
    before, gate_scores = champion_of(copied), list(Home(copied).evals.glob("*/scores.json"))
    promoted_with = gate_scores[0].read_bytes()
    import_into(copied, clear_preferences(copied.parent / "more.jsonl", prompts=110))
    assert run_job(instance, assets=["preference_pairs", "nemo_rl_dataset"]).success
    result = evaluate_champion(instance)
    assert result.success and failed_checks(result) == []
    said = metadata(result, "champion_scores")
    data = ArtifactStore(root=str(copied)).preference_data()
    assert data.through_seq >= 110 and said["champion/pairs"] == said["champion/prompts"] == data.validation_rows > 12
    assert said["champion/held_out_accuracy"] > 0.9
    assert 0.5 < said["champion/held_out_accuracy_low"] < said["champion/held_out_accuracy_high"] <= 1
    assert said["champion/accuracy_at_promotion"] == before.accuracy
    assert said["champion/off_topic_loss"] > 0 and said["champion/base_off_topic_loss"] > 0
    assert said["checkpoint_id"] == before.checkpoint_id
    assert json.loads(Path(said["scores"]).read_text())["data_version"] == data.data_version
    # What its promotion rests on is as it was, and so is the champion.
    assert list(Home(copied).evals.glob("*/scores.json")) == gate_scores
    assert gate_scores[0].read_bytes() == promoted_with and champion_of(copied) == before


def test_without_a_champion_it_ends_clean_and_says_so(copied: Path, instance: dg.DagsterInstance) -> None:
    shutil.rmtree(Home(copied).champion)
    result = evaluate_champion(instance)
    assert result.success and result.asset_materializations_for_node("champion_scores") == []
    (observation,) = result.asset_observations_for_node("champion_scores")
    assert observation.metadata["champion"].value == "none; the base model serves"
    assert check(copied).passed


def test_an_empty_home_has_nothing_to_score(home: Path, instance: dg.DagsterInstance) -> None:
    assert evaluate_champion(instance).success


def test_prompts_that_the_champion_was_trained_on_are_refused(copied: Path, instance: dg.DagsterInstance) -> None:
    assert run_job(instance, assets=["nemo_rl_dataset"], split={"validation_fraction": 0.5}).success
    failure = evaluate_champion(instance).failure_data_for_node("champion_scores")
    assert failure is not None and failure.user_failure_data is not None
    assert "The champion" in str(failure.user_failure_data.description)
    assert "was trained with validation_fraction 0.2" in str(failure.user_failure_data.description)


def test_a_champion_whose_run_is_gone_says_what_to_do(copied: Path, instance: dg.DagsterInstance) -> None:
    shutil.rmtree(Home(copied).runs)
    failure = evaluate_champion(instance).failure_data_for_node("champion_scores")
    assert failure is not None and failure.user_failure_data is not None
    assert "cannot be scored: no training run" in str(failure.user_failure_data.description)
    assert ROLLBACK in str(failure.user_failure_data.description)


@pytest.mark.parametrize(
    ("accuracy", "interval", "lost"),
    [
        (0.99, (0.93, 1.0), None),
        (0.75, (0.51, 1.0), None),
        (0.60, (0.45, 0.75), "not surely above one half any more"),
        (0.70, (0.60, 0.80), "1.000 at its promotion, which is above the interval"),
        (0.50, (0.50, 1.0), "not surely above one half any more"),
    ],
)
def test_the_check_warns_when_the_champion_lost_what_it_was_promoted_for(
    copied: Path, accuracy: float, interval: tuple[float, float], lost: str | None
) -> None:
    store = ChampionStore(Home(copied).champion)
    file = Home(copied).champion / "champion.json"
    state = json.loads(file.read_text())
    state["champions"][state["current"]]["accuracy"] = 1.0
    file.write_text(json.dumps(state))
    assert store.current() is not None
    write_scores(copied, accuracy, interval)
    result = check(copied)
    assert result.severity is dg.AssetCheckSeverity.WARN and result.passed is (lost is None)
    said = str(result.description)
    assert said.startswith(f"held-out accuracy {accuracy:.3f} [{interval[0]:.3f}, {interval[1]:.3f}] on 40 prompts")
    assert (ROLLBACK in said and "go back to the base model" in said and lost in said) if lost else ROLLBACK not in said


def test_a_champion_that_was_never_looked_at_again_is_a_warning(copied: Path) -> None:
    result = check(copied)
    assert not result.passed and result.severity is dg.AssetCheckSeverity.WARN
    assert "materialize champion_scores" in str(result.description)


def test_the_loop_does_not_score_the_champion_again() -> None:
    loop = {node.name for node in defs.resolve_job_def("feedback_to_champion").nodes}
    weekly = {node.name for node in defs.resolve_job_def("champion_evaluation").nodes}
    assert weekly == {"champion_scores", "champion_scores_champion_still_better"} and not weekly & loop
    assert {"imported_feedback", "preference_pairs", "dpo_checkpoint", "champion", "eval_scores_gate"} <= loop
