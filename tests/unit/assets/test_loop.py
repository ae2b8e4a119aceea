"""The loop itself, with a real trainer: decisions in, a champion out, and nothing promoted without proof."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from nvtrader_rl_dagster import files
from nvtrader_rl_dagster.assets.checks import (
    checkpoint_loads,
    finite_loss,
    gate,
    no_contradiction,
    no_leakage,
    step0_is_ln2,
)
from nvtrader_rl_dagster.evaluation.champion import ChampionStore
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.checkpoints import newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.runs import RunState, RunStore
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.gb10 import GB10Resource
from tests.loop import clear_preferences, failed_checks, import_into, metadata, run_job


def scores_file(home: Path) -> Path:
    (file,) = Home(home).evals.glob("*/scores.json")
    return file


def test_it_ends_with_a_promoted_champion(finished: tuple[Path, dg.ExecuteInProcessResult]) -> None:
    root, result = finished
    assert result.success and failed_checks(result) == []
    champion = ChampionStore(Home(root).champion).current()
    assert champion is not None and champion.accuracy > 0.9
    said = metadata(result, "champion")
    assert said["checkpoint_id"] == champion.checkpoint_id and said["replaced"] == "the base model"


def test_the_checkpoint_loads_and_says_what_it_was_made_from(
    finished: tuple[Path, dg.ExecuteInProcessResult],
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    root, _ = finished
    run = RunStore(Home(root).runs).newest("dpo")
    assert run is not None
    checkpoint = newest_checkpoint(run.checkpoints)
    assert checkpoint is not None and checkpoint.step == 6
    AutoModelForCausalLM.from_pretrained(checkpoint.huggingface)
    AutoTokenizer.from_pretrained(checkpoint.huggingface)
    manifest, record = checkpoint.manifest, run.record()
    data = files.current(Home(root).dataset("nemo_rl"))
    assert data is not None
    assert manifest["data_version"] == record.data_hash == data.data_version
    assert manifest["trained_through_seq"] == 60 and manifest["base_model"] == "builtin:tiny"
    assert manifest["weights_sha256"] == checkpoint.weights_sha256()
    assert {"torch", "dagster", "python"} <= set(manifest["versions"])
    assert record.state is RunState.SUCCEEDED and record.exit_code == 0 and record.failure is None


def test_the_asset_page_has_numbers_curve_and_table(finished: tuple[Path, dg.ExecuteInProcessResult]) -> None:
    said = metadata(finished[1], "dpo_checkpoint")
    assert said["dpo/validation_loss_first"] == pytest.approx(math.log(2), abs=5e-5)
    assert said["dpo/validation_loss_last"] < 0.5
    assert said["dpo/reward_margin"] > 0
    assert said["curve"].startswith("![loss and reward margin](data:image/png;base64,iVBOR")
    assert len(said["curve"]) < 200_000
    steps = [record.data for record in said["steps"].records]
    assert [row["step"] for row in steps if row["split"] == "train"] == [1, 2, 3, 4, 5, 6]
    assert Path(said["log"]).exists() and Path(said["config"]).exists()
    assert "the embedded trainer" in said["backend"]


def test_a_training_costs_few_dagster_events(finished: tuple[Path, dg.ExecuteInProcessResult]) -> None:
    assert len(finished[1].all_events) < 200


def test_every_row_of_every_data_set_can_be_traced_to_its_pair(
    finished: tuple[Path, dg.ExecuteInProcessResult],
) -> None:
    home = Home(finished[0])
    pairs = files.current(home.pairs)
    assert pairs is not None
    known = {json.loads(line)["pair_id"] for line in (pairs.path / "pairs.jsonl").open()}
    assert len(known) == 60
    for shape in ("nemo_rl", "helpsteer3", "trl"):
        version = files.current(home.dataset(shape))
        assert version is not None
        rows = [
            json.loads(line)["pair_id"]
            for side in ("train", "validation")
            for line in (version.path / f"{side}.jsonl").open()
        ]
        assert sorted(rows) == sorted(known), shape


def test_an_unchanged_conversion_keeps_its_data_version(copied: Path) -> None:
    assets = ["preference_pairs", "nemo_rl_dataset", "trl_dataset", "helpsteer3_dataset"]
    with dg.DagsterInstance.ephemeral() as instance:
        before = {shape: files.current(Home(copied).dataset(shape)) for shape in ("nemo_rl", "trl", "helpsteer3")}
        tie = copied.parent / "tie.jsonl"
        row = {"kind": "preference", "prompt": "new", "chosen": "a", "rejected": "b", "votes": [0, 0, 1]}
        tie.write_text(json.dumps(row) + "\n")
        import_into(copied, tie)
        result = run_job(instance, assets=assets)
        assert result.success
        assert metadata(result, "preference_pairs")["decisions"] == 61
        for shape, version in before.items():
            after = files.current(Home(copied).dataset(shape))
            assert after is not None and version is not None
            assert after.data_version == version.data_version, shape
            assert after.manifest["through_seq"] == 61


def test_an_equal_candidate_does_not_replace_the_champion(copied: Path) -> None:
    """The second round trains the same model from the same data: not better, a normal end."""
    before = ChampionStore(Home(copied).champion).current()
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_job(instance)
    assert result.success and failed_checks(result) == ["gate"]
    assert result.asset_materializations_for_node("champion") == []
    (observation,) = result.asset_observations_for_node("champion")
    assert "against the champion: accuracy +0.000" in str(observation.metadata["reason"].value)
    assert ChampionStore(Home(copied).champion).current() == before


def test_prompts_that_a_model_was_trained_on_are_never_its_held_out_ones(copied: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_job(instance, assets=["nemo_rl_dataset", "eval_scores"], split={"validation_fraction": 0.5})
    failure = result.failure_data_for_node("eval_scores")
    assert failure is not None and failure.user_failure_data is not None
    assert "was trained with validation_fraction 0.2" in str(failure.user_failure_data.description)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("no scores", "has no scores"),
        ("other weights", "changed after they were scored"),
        ("failed gate", "made to fail"),
        ("other champion", "the champion changed after"),
        ("rolled back", "was rolled back by hand"),
    ],
)
def test_promotion_reads_the_gate_for_exactly_this_checkpoint_again(copied: Path, damage: str, reason: str) -> None:
    """Started alone, in a run of its own, where no check blocks."""
    home = Home(copied)
    champions = ChampionStore(home.champion)
    if damage != "other champion":
        champions.rollback("2026-01-01T00:00:00.000Z", "test")
    if damage != "rolled back":
        (home.champion / "champion.json").unlink()
    if damage == "no scores":
        scores_file(copied).unlink()
    elif damage == "other weights":
        (weights,) = home.runs.glob("*/checkpoints/step_*/policy/weights/model/consolidated/*.safetensors")
        weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    elif damage in ("failed gate", "other champion"):
        scores = json.loads(scores_file(copied).read_text())
        if damage == "failed gate":
            scores["gate"].update(passed=False, reason="made to fail")
        else:
            scores["champion_id"] = "dpo-20200101-000000-aaaaaa/step_1"
        scores_file(copied).write_text(json.dumps(scores))
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_job(instance, assets=["champion"])
    assert result.success
    (observation,) = result.asset_observations_for_node("champion")
    assert reason in str(observation.metadata["reason"].value)
    assert champions.current() is None


def test_a_held_out_prompt_in_train_is_found(copied: Path) -> None:
    artifacts, data = ArtifactStore(root=str(copied)), files.current(Home(copied).dataset("nemo_rl"))
    assert data is not None and no_leakage(artifacts=artifacts).passed
    train, validation = data.path / "train.jsonl", data.path / "validation.jsonl"
    train.write_bytes(train.read_bytes() + validation.read_bytes().splitlines(keepends=True)[0])
    result = no_leakage(artifacts=artifacts)
    assert not result.passed and result.description == "1 training pairs have a held-out prompt"


def test_a_pair_in_both_directions_is_found(copied: Path) -> None:
    artifacts, data = ArtifactStore(root=str(copied)), files.current(Home(copied).dataset("nemo_rl"))
    assert data is not None and no_contradiction(artifacts=artifacts).passed
    train = data.path / "train.jsonl"
    row = json.loads(train.read_text().splitlines()[0])
    better, worse = (completion["completion"] for completion in row["completions"])
    row["completions"] = [{"rank": 0, "completion": worse}, {"rank": 1, "completion": better}]
    train.write_text(train.read_text() + json.dumps(row) + "\n")
    assert not no_contradiction(artifacts=artifacts).passed


@pytest.mark.parametrize(
    ("check", "loss", "passed"),
    [
        (step0_is_ln2, 0.6931, True),
        (step0_is_ln2, 0.6933, False),
        (step0_is_ln2, None, False),
        (finite_loss, 0.6931, True),
        (finite_loss, None, False),
    ],
)
def test_the_losses_are_checked(copied: Path, check: Any, loss: float | None, passed: bool) -> None:
    (metrics,) = Home(copied).runs.glob("*/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    for row in rows:
        if row["name"] == "loss" and row["step"] == 0:
            row.update(value=loss, **({} if loss else {"flag": "nan"}))
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert check(artifacts=ArtifactStore(root=str(copied))).passed is passed


@pytest.mark.parametrize(("damage", "said"), [("cut", "safetensors"), ("nan", "not finite numbers")])
def test_a_checkpoint_that_does_not_work_is_found(copied: Path, damage: str, said: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    artifacts = ArtifactStore(root=str(copied))
    (weights,) = Home(copied).runs.glob("*/checkpoints/step_*/policy/weights/model/consolidated/*.safetensors")
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    else:
        tensors = load_file(weights)
        tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], float("nan"))
        save_file(tensors, weights, metadata={"format": "pt"})
    result = checkpoint_loads(artifacts=artifacts, gb10=GB10Resource(artifacts=artifacts))
    assert not result.passed and said in str(result.description).lower()


def test_a_failed_guard_is_an_error_and_not_better_is_a_warning(copied: Path) -> None:
    artifacts = ArtifactStore(root=str(copied))
    scores = json.loads(scores_file(copied).read_text())
    for guard, severity in ((False, dg.AssetCheckSeverity.WARN), (True, dg.AssetCheckSeverity.ERROR)):
        check = {"name": "x", "passed": False, "guard": guard, "detail": "y"}
        scores["gate"] = {"passed": False, "reason": "y", "checks": [check]}
        scores_file(copied).write_text(json.dumps(scores))
        result = gate(artifacts=artifacts)
        assert not result.passed and result.severity is severity


def test_too_little_feedback_is_refused_with_a_reason_and_nothing_is_trained(home: Path) -> None:
    one = home.parent / "one.jsonl"
    one.write_text('{"prompt": "p", "completion": "a", "label": true}\n')
    import_into(home, one)
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_job(instance)
    assert not result.success
    assert failed_checks(result) == ["has_training_pairs"]
    assert list(RunStore(Home(home).runs).all()) == []


def test_a_trainer_that_fails_leaves_a_failed_run_that_names_the_cause(home: Path) -> None:
    import_into(home, clear_preferences(home.parent / "feedback.jsonl", prompts=20))
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_job(instance, training={"base_model": "/no/such/model"})
    assert not result.success
    (run,) = RunStore(Home(home).runs).all()
    record = run.record()
    assert record.state is RunState.FAILED and record.failure is not None and record.failure["code"] == "model_missing"
    failure = result.failure_data_for_node("dpo_checkpoint")
    assert failure is not None and failure.user_failure_data is not None
    assert "/no/such/model" in str(failure.user_failure_data.description)
    assert not ChampionStore(Home(home).champion).current()
