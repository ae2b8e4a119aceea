"""Asset checks. The blocking ones stop a run before a bad data set trains or a broken model is scored."""

import math
from hashlib import blake2b
from pathlib import Path
from typing import Any

import dagster as dg
import orjson

from nvtrader_rl_dagster.assets.champion_scores import champion_scores, scores_file
from nvtrader_rl_dagster.assets.checkpoints import dpo_checkpoint
from nvtrader_rl_dagster.assets.datasets import nemo_rl_dataset
from nvtrader_rl_dagster.assets.evals import SCORES_FILE, eval_scores
from nvtrader_rl_dagster.files import read_json
from nvtrader_rl_dagster.nemo_rl.metrics import read_metrics
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.gb10 import GB10Resource

_LN2_TOLERANCE = 5e-5 + 1e-9  # NeMo-RL prints four decimals


@dg.asset_check(asset=nemo_rl_dataset, blocking=True)
def has_training_pairs(artifacts: ArtifactStore) -> dg.AssetCheckResult:
    """There is something to train on."""
    data = artifacts.preference_data()
    return dg.AssetCheckResult(
        passed=data.train_rows > 0,
        description=(
            f"{data.train_rows} training pairs, {data.validation_rows} held out"
            + ("" if data.train_rows else "; import more decisions, for and against answers to the same prompts")
        ),
        metadata={"train": data.train_rows, "validation": data.validation_rows},
    )


@dg.asset_check(asset=nemo_rl_dataset, blocking=True)
def no_leakage(artifacts: ArtifactStore) -> dg.AssetCheckResult:
    """No prompt stands in both train and validation."""
    data = artifacts.preference_data()
    held_out = {_digest(row["context"]) for row in _rows(data.held_out)}
    leaked = [row["pair_id"] for row in _rows(data.train) if _digest(row["context"]) in held_out]
    return dg.AssetCheckResult(
        passed=not leaked,
        description=f"{len(leaked)} training pairs have a held-out prompt",
        metadata={"leaked": len(leaked), "first": leaked[:10]},
    )


@dg.asset_check(asset=nemo_rl_dataset, blocking=True)
def no_contradiction(artifacts: ArtifactStore) -> dg.AssetCheckResult:
    """No two answers to one prompt are preferred in both directions in train."""
    seen: set[bytes] = set()
    both: list[str] = []
    for row in _rows(artifacts.preference_data().train):
        better, worse = (completion["completion"] for completion in row["completions"])
        seen.add(_digest([row["context"], better, worse]))
        if _digest([row["context"], worse, better]) in seen:
            both.append(row["pair_id"])
    return dg.AssetCheckResult(
        passed=not both,
        description=f"{len(both)} pairs contradict another one",
        metadata={"contradictions": len(both), "first": both[:10]},
    )


@dg.asset_check(asset=dpo_checkpoint, blocking=True)
def step0_is_ln2(artifacts: ArtifactStore) -> dg.AssetCheckResult:
    """Before the first step policy and reference are the same model, so the DPO loss is ln 2.

    Another value means that the two see different tokens, masks or weights.
    """
    run, _ = artifacts.trained("dpo")
    metrics = read_metrics(run.metrics)
    first = next((m for m in metrics if m.name == "loss" and m.split == "validation" and m.step == 0), None)
    # A run without validation still starts its first step from equal models.
    first = first or next((m for m in metrics if m.name == "preference_loss" and m.step == 1), None)
    value = first.value if first else None
    return dg.AssetCheckResult(
        passed=value is not None and abs(value - math.log(2)) <= _LN2_TOLERANCE,
        description=f"loss at step 0 is {value}; ln 2 is {math.log(2):.4f}",
        metadata={"loss": value} if value is not None else {},
    )


@dg.asset_check(asset=dpo_checkpoint, blocking=True)
def finite_loss(artifacts: ArtifactStore) -> dg.AssetCheckResult:
    """Every loss of the run is a number."""
    run, _ = artifacts.trained("dpo")
    losses = [m for m in read_metrics(run.metrics) if m.name == "loss"]
    broken = [f"{m.split} step {m.step}: {m.flag}" for m in losses if m.value is None]
    return dg.AssetCheckResult(
        passed=bool(losses) and not broken,
        description=f"{len(broken)} of {len(losses)} losses are no number",
        metadata={"losses": len(losses), "first": broken[:10]},
    )


@dg.asset_check(asset=dpo_checkpoint, blocking=True)
def checkpoint_loads(artifacts: ArtifactStore, gb10: GB10Resource) -> dg.AssetCheckResult:
    """The saved folder loads as a Hugging Face model and answers with finite numbers."""
    run, checkpoint = artifacts.trained("dpo")
    loaded, detail = gb10.try_model(str(checkpoint.huggingface), run.path / "check")
    return dg.AssetCheckResult(passed=loaded, description=detail)


@dg.asset_check(asset=eval_scores, blocking=True)
def gate(artifacts: ArtifactStore) -> dg.AssetCheckResult:
    """The candidate is provably better than base and champion, and nothing broke.

    A failed guard (damage) is an error and blocks; 'not better' is a warning: a normal end of a round.
    """
    _, checkpoint = artifacts.trained("dpo")
    scores = read_json(artifacts.evaluation(checkpoint.manifest["checkpoint_id"]) / SCORES_FILE)
    result: dict[str, Any] = scores["gate"]
    damaged = [check for check in result["checks"] if check["guard"] and not check["passed"]]
    return dg.AssetCheckResult(
        passed=result["passed"],
        severity=dg.AssetCheckSeverity.ERROR if damaged else dg.AssetCheckSeverity.WARN,
        description=result["reason"],
        metadata={check["name"]: check["detail"] for check in result["checks"]},
    )


@dg.asset_check(asset=champion_scores)
def champion_still_better(artifacts: ArtifactStore) -> dg.AssetCheckResult:
    """The champion still beats its base on the decisions of today, and has not lost what it was promoted for.

    A warning, because going back is a person's decision.
    """
    serving = artifacts.champions.current()
    if serving is None:
        return dg.AssetCheckResult(passed=True, description="there is no champion; the base model serves")
    file = scores_file(artifacts, serving)
    if not file.exists():
        return dg.AssetCheckResult(
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"{serving.checkpoint_id} is not scored since its promotion; materialize champion_scores",
        )
    scores = read_json(file)
    measured: dict[str, Any] = scores["evaluation"]["candidate"]
    accuracy, (low, high) = measured["accuracy"], measured["interval"]
    lost = []
    if low <= 0.5:
        lost.append("it is not surely above one half any more")
    if serving.accuracy > high:
        lost.append(f"it was {serving.accuracy:.3f} at its promotion, which is above the interval")
    said = f"held-out accuracy {accuracy:.3f} [{low:.3f}, {high:.3f}] on {scores['evaluation']['prompts']} prompts"
    remedy = f". To go back to {serving.previous or 'the base model'}: nvtrader-rl champion rollback"
    return dg.AssetCheckResult(
        passed=not lost,
        severity=dg.AssetCheckSeverity.WARN,
        description=said + ("; " + "; ".join(lost) + remedy if lost else ""),
        metadata={"checkpoint_id": serving.checkpoint_id, "scored": scores["scored"]},
    )


CHECKS = [
    has_training_pairs,
    no_leakage,
    no_contradiction,
    step0_is_ln2,
    finite_loss,
    checkpoint_loads,
    gate,
    champion_still_better,
]


def _rows(path: Path) -> Any:
    with path.open("rb") as source:
        yield from map(orjson.loads, source)


def _digest(value: Any) -> bytes:
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
