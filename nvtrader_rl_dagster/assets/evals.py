"""Scores of a checkpoint on held-out pairs, and the gate's decision about it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from nvtrader_rl_dagster.assets.checkpoints import dpo_checkpoint
from nvtrader_rl_dagster.assets.common import OWNERS, refuse_unfair
from nvtrader_rl_dagster.assets.datasets import nemo_rl_dataset
from nvtrader_rl_dagster.evaluation.gate import GateResult, GateRules, judge
from nvtrader_rl_dagster.evaluation.scores import Evaluation, evaluate, prompts_by_pair, read_scores
from nvtrader_rl_dagster.files import write_json
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.gb10 import GB10Resource

SCORES_FILE = "scores.json"


class EvalConfig(dg.Config, GateRules):
    """The gate's rules and the scorer's limits."""

    max_sequence_tokens: int = Field(
        default=1024, ge=16, description="Held-out pairs with a longer side are not scored."
    )


@dg.asset(
    deps=[dpo_checkpoint, nemo_rl_dataset],
    group_name="evaluation",
    kinds={"pytorch"},
    owners=OWNERS,
    code_version="1",
    pool="gpu",
)
def eval_scores(config: EvalConfig, gb10: GB10Resource, artifacts: ArtifactStore) -> dg.MaterializeResult:
    """Held-out preference accuracy of the newest checkpoint beside the base and the champion."""
    _, checkpoint = artifacts.trained("dpo")
    manifest, champion = checkpoint.manifest, artifacts.champions.current()
    models = {"base": manifest["base_model"], "candidate": str(checkpoint.huggingface)}
    trained = {"candidate": manifest}
    if champion and champion.checkpoint_id != manifest["checkpoint_id"]:
        models["champion"] = champion.path
        trained["champion"] = artifacts.checkpoint(champion.checkpoint_id).manifest
    held_out = artifacts.preference_data()
    refuse_unfair(held_out, trained)
    out = artifacts.evaluation(manifest["checkpoint_id"])
    summary = gb10.score(models, held_out.held_out, out, config.max_sequence_tokens)
    scores = {name: read_scores(out / f"{name}.jsonl") for name in models}
    evaluation = evaluate(
        scores["base"],
        scores["candidate"],
        scores.get("champion"),
        prompts_by_pair(held_out.held_out),
        {name: summary[name]["off_topic_loss"] for name in models},
        config.confidence,
    )
    gate = judge(evaluation, config)
    write_json(
        out / SCORES_FILE,
        {
            "checkpoint_id": manifest["checkpoint_id"],
            "weights_sha256": manifest["weights_sha256"],
            "base_model": manifest["base_model"],
            "champion_id": champion.checkpoint_id if champion else None,
            "data_version": held_out.data_version,
            "evaluation": asdict(evaluation),
            "gate": asdict(gate),
        },
    )
    return dg.MaterializeResult(metadata=_metadata(manifest["checkpoint_id"], evaluation, gate, out))


def _metadata(checkpoint_id: str, e: Evaluation, gate: GateResult, out: Path) -> dict[str, Any]:
    numbers: dict[str, float | int] = {
        "eval/accuracy": e.candidate.accuracy,
        "eval/accuracy_low": e.candidate.interval[0],
        "eval/accuracy_high": e.candidate.interval[1],
        "eval/p_value": e.candidate.p_value,
        "eval/margin": e.candidate.margin,
        "eval/length_normalised_accuracy": e.candidate.length_normalised_accuracy,
        "eval/base_length_normalised_accuracy": e.base_length_normalised_accuracy,
        "eval/longer_wins_accuracy": e.longer_wins_accuracy,
        "eval/off_topic_loss": e.off_topic_loss["candidate"],
        "eval/base_off_topic_loss": e.off_topic_loss["base"],
        "eval/chosen_shift_per_token": e.candidate.chosen_shift_per_token,
        "eval/pairs": e.pairs,
        "eval/prompts": e.prompts,
        "eval/not_scored": e.not_scored,
    }
    if e.against_champion is not None:
        numbers["eval/over_champion"] = e.against_champion.difference
        numbers["eval/over_champion_p_value"] = e.against_champion.p_value
    return {
        **{name: round(value, 6) for name, value in numbers.items()},
        "promotable": gate.passed,
        "gate": gate.reason,
        "gate_checks": dg.MetadataValue.table(
            [
                dg.TableRecord(
                    {
                        "check": check.name,
                        "passed": check.passed,
                        "kind": "guard" if check.guard else "comparison",
                        "detail": check.detail,
                    }
                )
                for check in gate.checks
            ]
        ),
        "models": dg.MetadataValue.table(_models(e)),
        "checkpoint_id": checkpoint_id,
        "scores": dg.MetadataValue.path(str(out / SCORES_FILE)),
    }


def _models(e: Evaluation) -> list[dg.TableRecord]:
    """Base, candidate and champion side by side. The base has no implicit reward against itself."""
    records = [
        dg.TableRecord(
            {
                "model": "base",
                "accuracy": "-",
                "length_normalised": f"{e.base_length_normalised_accuracy:.3f}",
                "margin": "-",
                "off_topic_loss": f"{e.off_topic_loss['base']:.4f}",
            }
        )
    ]
    for name, result in (("candidate", e.candidate), ("champion", e.champion)):
        if result is not None:
            low, high = result.interval
            records.append(
                dg.TableRecord(
                    {
                        "model": name,
                        "accuracy": f"{result.accuracy:.3f} [{low:.3f}, {high:.3f}]",
                        "length_normalised": f"{result.length_normalised_accuracy:.3f}",
                        "margin": f"{result.margin:+.3f}",
                        "off_topic_loss": f"{e.off_topic_loss[name]:.4f}",
                    }
                )
            )
    return records
