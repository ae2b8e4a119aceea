"""The champion, scored again on what people decided since."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from nvtrader_rl_dagster.assets.common import OWNERS, refuse_unfair
from nvtrader_rl_dagster.assets.datasets import nemo_rl_dataset
from nvtrader_rl_dagster.assets.promotion import champion
from nvtrader_rl_dagster.evaluation.champion import Champion
from nvtrader_rl_dagster.evaluation.scores import Evaluation, evaluate, prompts_by_pair, read_scores
from nvtrader_rl_dagster.files import write_json
from nvtrader_rl_dagster.nemo_rl.runs import timestamp
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.gb10 import GB10Resource

_FILE = "champion_scores.json"


class ChampionScoresConfig(dg.Config):
    """How the champion is scored."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="Confidence of the accuracy's interval.")
    max_sequence_tokens: int = Field(
        default=1024, ge=16, description="Held-out pairs with a longer side are not scored."
    )


@dg.asset(
    deps=[champion, nemo_rl_dataset],
    group_name="evaluation",
    kinds={"pytorch"},
    owners=OWNERS,
    code_version="1",
    pool="gpu",
    # Without a champion there is nothing to score: an observation says so.
    output_required=False,
)
def champion_scores(
    context: dg.AssetExecutionContext, config: ChampionScoresConfig, gb10: GB10Resource, artifacts: ArtifactStore
) -> Iterator[dg.AssetObservation | dg.MaterializeResult]:
    """Held-out preference accuracy of the champion against its base model, on the pairs of today."""
    serving = artifacts.champions.current()
    if serving is None:
        context.log.info("there is no champion; the base model serves")
        yield dg.AssetObservation(
            context.asset_key, description="nothing to score", metadata={"champion": "none; the base model serves"}
        )
        return
    held_out = artifacts.preference_data()
    refuse_unfair(held_out, {"champion": _manifest(serving, artifacts)})
    out = scores_file(artifacts, serving).parent
    models = {"base": serving.base_model, "champion": serving.path}
    summary = gb10.score(models, held_out.held_out, out, config.max_sequence_tokens)
    evaluation = evaluate(
        read_scores(out / "base.jsonl"),
        read_scores(out / "champion.jsonl"),
        None,
        prompts_by_pair(held_out.held_out),
        {name: summary[name]["off_topic_loss"] for name in models},
        config.confidence,
    )
    write_json(
        scores_file(artifacts, serving),
        {
            "checkpoint_id": serving.checkpoint_id,
            "weights_sha256": serving.weights_sha256,
            "base_model": serving.base_model,
            "scored": timestamp(),
            "data_version": held_out.data_version,
            "through_seq": held_out.through_seq,
            "evaluation": asdict(evaluation),
        },
    )
    yield dg.MaterializeResult(metadata=_metadata(serving, evaluation, out))


def scores_file(artifacts: ArtifactStore, serving: Champion) -> Path:
    """The champion's newest scores: beside those that its promotion rests on, which stay."""
    return artifacts.evaluation(f"{serving.checkpoint_id}/serving") / _FILE


def _manifest(serving: Champion, artifacts: ArtifactStore) -> dict[str, Any]:
    try:
        return artifacts.checkpoint(serving.checkpoint_id).manifest
    except KeyError as error:
        raise dg.Failure(
            f"The champion {serving.checkpoint_id} cannot be scored: {error.args[0]}. Put its run folder back, or go "
            "back to the one before: nvtrader-rl champion rollback",
            allow_retries=False,
        ) from error


def _metadata(serving: Champion, e: Evaluation, out: Path) -> dict[str, Any]:
    result = e.candidate
    numbers: dict[str, float | int] = {
        "champion/held_out_accuracy": result.accuracy,
        "champion/held_out_accuracy_low": result.interval[0],
        "champion/held_out_accuracy_high": result.interval[1],
        "champion/accuracy_at_promotion": serving.accuracy,
        "champion/p_value": result.p_value,
        "champion/margin": result.margin,
        "champion/off_topic_loss": e.off_topic_loss["champion"],
        "champion/base_off_topic_loss": e.off_topic_loss["base"],
        "champion/pairs": e.pairs,
        "champion/prompts": e.prompts,
        "champion/not_scored": e.not_scored,
    }
    return {
        **{name: round(value, 6) for name, value in numbers.items()},
        "checkpoint_id": serving.checkpoint_id,
        "promoted": serving.promoted,
        "scores": dg.MetadataValue.path(str(out / _FILE)),
    }
