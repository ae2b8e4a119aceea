"""The champion: the one checkpoint that serves, changed only by a passed gate."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from nvtrader_rl_dagster.assets.common import OWNERS
from nvtrader_rl_dagster.assets.evals import SCORES_FILE, eval_scores
from nvtrader_rl_dagster.evaluation.champion import Champion
from nvtrader_rl_dagster.files import read_json
from nvtrader_rl_dagster.nemo_rl.runs import timestamp
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore


@dg.asset(
    deps=[eval_scores],
    group_name="promotion",
    kinds={"huggingface"},
    owners=OWNERS,
    code_version="1",
    # A candidate that is not better is a normal end: an observation says why, the champion stays.
    output_required=False,
)
def champion(
    context: dg.AssetExecutionContext, artifacts: ArtifactStore
) -> Iterator[dg.AssetObservation | dg.MaterializeResult]:
    """Points at the best checkpoint so far. Materialized exactly when a candidate is promoted.

    Reads the gate's decision for exactly this checkpoint again: a blocking check only blocks inside
    its own run, and this asset can be started alone.
    """
    _, checkpoint = artifacts.trained("dpo")
    checkpoint_id = checkpoint.manifest["checkpoint_id"]
    champions = artifacts.champions
    current = champions.current()
    decision = _decision(artifacts, checkpoint_id)
    refusal = _refusal(decision, checkpoint_id, checkpoint.weights_sha256(), artifacts)
    if refusal:
        context.log.info("not promoted: %s", refusal)
        yield dg.AssetObservation(
            context.asset_key,
            description="not promoted",
            metadata={
                "promoted": False,
                "reason": refusal,
                "candidate": checkpoint_id,
                "champion": current.checkpoint_id if current else "none; the base model serves",
            },
        )
        return
    assert decision is not None
    promoted = Champion(
        checkpoint_id=checkpoint_id,
        path=str(checkpoint.huggingface),
        base_model=decision["base_model"],
        weights_sha256=decision["weights_sha256"],
        promoted=timestamp(),
        accuracy=decision["evaluation"]["candidate"]["accuracy"],
        reason=decision["gate"]["reason"],
        previous=decision["champion_id"],
    )
    champions.promote(promoted)
    yield dg.MaterializeResult(
        data_version=dg.DataVersion(promoted.weights_sha256[:32]),
        metadata={
            "promoted": True,
            "champion/accuracy": promoted.accuracy,
            "reason": promoted.reason,
            "checkpoint_id": checkpoint_id,
            "replaced": promoted.previous or "the base model",
            "huggingface_folder": dg.MetadataValue.path(promoted.path),
        },
    )


def _decision(artifacts: ArtifactStore, checkpoint_id: str) -> dict[str, Any] | None:
    file = artifacts.evaluation(checkpoint_id) / SCORES_FILE
    return read_json(file) if file.exists() else None


def _refusal(decision: dict[str, Any] | None, checkpoint_id: str, weights: str, artifacts: ArtifactStore) -> str | None:
    """Why this checkpoint must not become the champion now; None when nothing speaks against it."""
    if decision is None:
        return f"{checkpoint_id} has no scores; materialize eval_scores first"
    if decision["checkpoint_id"] != checkpoint_id or decision["weights_sha256"] != weights:
        return f"the weights of {checkpoint_id} changed after they were scored; materialize eval_scores again"
    current = artifacts.champions.current()
    current_id = current.checkpoint_id if current else None
    if current_id == checkpoint_id:
        return f"{checkpoint_id} is the champion already"
    if decision["champion_id"] != current_id:
        return "the champion changed after the scores were taken; materialize eval_scores again"
    if artifacts.champions.was_rolled_back(checkpoint_id):
        return f"{checkpoint_id} was rolled back by hand; it is not promoted again"
    if not decision["gate"]["passed"]:
        return str(decision["gate"]["reason"])
    return None
