"""The summary of one run of the loop, read back from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg

from nvtrader_rl_dagster import files
from nvtrader_rl_dagster.assets.evals import SCORES_FILE
from nvtrader_rl_dagster.cli.console import errors, facts
from nvtrader_rl_dagster.cli.demo import RUN_TAG
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.checkpoints import newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.metrics import read_metrics
from nvtrader_rl_dagster.nemo_rl.runs import RunStore
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore


def print_summary(home: Home, tag: str, seconds: float) -> None:
    """Decisions, pairs, steps, losses, accuracy with interval, promotion and where everything lies."""
    artifacts = ArtifactStore(root=str(home.root))
    run = RunStore(home.runs).newest("dpo")
    checkpoint = newest_checkpoint(run.checkpoints) if run else None
    pairs = files.current(home.pairs)
    assert run and checkpoint and pairs, "a successful run leaves all of these"
    manifest, info = checkpoint.manifest, checkpoint.training_info
    scores = files.read_json(artifacts.evaluation(manifest["checkpoint_id"]) / SCORES_FILE)
    evaluation, report = scores["evaluation"], pairs.manifest["report"]
    candidate = evaluation["candidate"]
    low, high = candidate["interval"]
    losses = [m for m in read_metrics(run.metrics) if m.name == "loss" and m.value is not None]
    held_out = [m for m in losses if m.split == "validation"] or losses
    promoted, reason = _promotion(tag)
    facts(
        "",
        [
            ("decisions in the store", f"{report['decisions']:,}"),
            ("usable pairs", f"{report['usable_pairs']:,} on {report['prompts']:,} prompts"),
            ("set aside", _set_aside(report["set_aside"])),
            ("base model", manifest["base_model"]),
            ("steps trained", f"{checkpoint.step}, {info['consumed_samples']} pairs in all"),
            ("held-out loss", f"step 0 {held_out[0].value:.4f} → end {held_out[-1].value:.4f}"),
            (
                "held-out accuracy",
                f"{candidate['accuracy']:.3f} [{low:.3f}, {high:.3f}] on {evaluation['pairs']} pairs of "
                f"{evaluation['prompts']} prompts, by implicit reward over the base (no preference: 0.5)"
                + (f"; {evaluation['not_scored']} more were too long" if evaluation["not_scored"] else ""),
            ),
            (
                "length-normalised",
                f"base {evaluation['base_length_normalised_accuracy']:.3f} → "
                f"candidate {candidate['length_normalised_accuracy']:.3f}",
            ),
            ("'the longer one wins'", f"{evaluation['longer_wins_accuracy']:.3f}"),
            (
                "off-topic loss",
                f"base {evaluation['off_topic_loss']['base']:.3f} → "
                f"candidate {evaluation['off_topic_loss']['candidate']:.3f}",
            ),
            ("promoted", f"{'yes' if promoted else 'no'}: {reason}"),
            ("checkpoint", str(checkpoint.path)),
            ("as Hugging Face model", str(checkpoint.huggingface)),
            ("took", f"{seconds:.0f} s"),
            ("open the UI", "make up   (then http://127.0.0.1:3000)"),
        ],
    )


def print_failure(tag: str, log: Path) -> None:
    """Which step failed and why, in the words of the error."""
    found = False
    instance = dg.DagsterInstance.get()
    for record in instance.get_run_records(dg.RunsFilter(tags={RUN_TAG: tag}), limit=1):
        for entry in instance.all_logs(record.dagster_run.run_id):
            event = entry.dagster_event
            if event is None:
                continue
            if event.event_type is dg.DagsterEventType.STEP_FAILURE:
                data = event.step_failure_data
                cause = (data.error.cause or data.error) if data.error else None
                if cause and cause.cls_name == "DagsterAssetCheckFailedError":
                    continue  # the check said why itself
                user = data.user_failure_data.description if data.user_failure_data else None
                errors.print(f"{event.step_key}: {user or (cause.message if cause else '')}".strip(), markup=False)
                found = True
            elif event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                check = event.asset_check_evaluation_data
                if not check.passed:
                    errors.print(f"check {check.check_name} failed: {check.description}", markup=False)
                    found = True
    if not found:
        errors.print("the run did not start; the end of its log:")
        for line in log.read_text(encoding="utf-8").splitlines()[-5:]:
            errors.print("  " + line, markup=False)
    errors.print(f"the whole log: {log}", markup=False)


def _promotion(tag: str) -> tuple[bool, str]:
    """What the champion asset said in this run."""
    instance = dg.DagsterInstance.get()
    (record,) = instance.get_run_records(dg.RunsFilter(tags={RUN_TAG: tag}), limit=1)
    for entry in instance.all_logs(record.dagster_run.run_id):
        event = entry.dagster_event
        if event is None or event.asset_key != dg.AssetKey("champion"):
            continue
        if event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
            return True, _text(event.step_materialization_data.materialization.metadata["reason"])
        if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION:
            return False, _text(event.asset_observation_data.asset_observation.metadata["reason"])
    return False, "the champion asset said nothing"


def _text(value: Any) -> str:
    return str(value.value)


def _set_aside(counts: dict[str, int]) -> str:
    listed = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items(), key=lambda i: -i[1]))
    return f"{sum(counts.values()):,} ({listed})" if counts else "none"
