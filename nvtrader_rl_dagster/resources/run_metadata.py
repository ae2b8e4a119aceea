"""What a finished training run shows on its asset page: numbers, curve, table of steps, links."""

from __future__ import annotations

import base64
from typing import Any

import dagster as dg

from nvtrader_rl_dagster.nemo_rl.checkpoints import Checkpoint, newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.metrics import read_metrics
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory
from nvtrader_rl_dagster.plots import training_curve

_TABLE_ROWS = 50
_TABLE_COLUMNS = ("loss", "accuracy", "rewards_chosen_mean", "rewards_rejected_mean", "step_seconds")


def checkpoint_metadata(directory: RunDirectory, backend: str) -> dg.MaterializeResult:
    """The materialization of a trained checkpoint. Its data version is the hash of the weights."""
    checkpoint = newest_checkpoint(directory.checkpoints)
    if checkpoint is None:
        raise FileNotFoundError(f"no complete checkpoint in {directory.checkpoints}")
    metrics = read_metrics(directory.metrics)
    manifest, record = checkpoint.manifest, directory.record()
    return dg.MaterializeResult(
        data_version=dg.DataVersion(manifest["weights_sha256"][:32]),
        metadata={
            **_curve(metrics),
            "steps": dg.MetadataValue.table(step_table(metrics)),
            # One point per training: the page draws these over time.
            **{f"dpo/{name}": value for name, value in _summary(metrics).items()},
            "dpo/steps": checkpoint.step,
            "checkpoint": dg.MetadataValue.path(str(checkpoint.path)),
            "huggingface_folder": _huggingface(checkpoint),
            "log": dg.MetadataValue.path(str(directory.log)),
            "config": dg.MetadataValue.path(str(directory.config)),
            "run_id": directory.run_id,
            "backend": backend,
            "base_model": manifest["base_model"],
            "trained_through_seq": manifest["trained_through_seq"],
            "notes": record.notes or "none",
        },
    )


def _curve(metrics: list[Metric]) -> dict[str, dg.MetadataValue]:
    """The picture of the training; one point makes none, and the drawing library takes a second to load."""
    if len({m.step for m in metrics}) < 2:
        return {}
    return {"curve": dg.MetadataValue.md(_image(training_curve(metrics)))}


def _huggingface(checkpoint: Checkpoint) -> dg.MetadataValue:
    try:
        return dg.MetadataValue.path(str(checkpoint.huggingface))
    except FileNotFoundError:  # a DTensor v1 worker saves shards
        return dg.MetadataValue.text("not exported")


def step_table(metrics: list[Metric]) -> list[dg.TableRecord]:
    """At most 50 rows, evenly thinned, the last step always in: one row per training step or validation."""
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for metric in metrics:
        row = rows.setdefault((metric.step, metric.split), {"step": metric.step, "split": metric.split})
        if metric.name in _TABLE_COLUMNS:
            row[metric.name] = metric.flag if metric.value is None else metric.value
    ordered = [rows[key] for key in sorted(rows, key=lambda key: (key[0], key[1] == "validation"))]
    stride = -(-len(ordered) // (_TABLE_ROWS - 1))
    thinned = ordered[:: max(1, stride)]
    if ordered and thinned[-1] is not ordered[-1]:
        thinned.append(ordered[-1])
    return [
        dg.TableRecord({"step": r["step"], "split": r["split"], **{c: r.get(c, "") for c in _TABLE_COLUMNS}})
        for r in thinned
    ]


def _summary(metrics: list[Metric]) -> dict[str, float]:
    """First and last values under stable names; what was not measured is left out."""
    found: dict[str, float] = {}
    for metric in metrics:
        if metric.value is None:
            continue
        key = "validation" if metric.split == "validation" else "train"
        if metric.name == "loss":
            found.setdefault(f"{key}_loss_first", metric.value)
            found[f"{key}_loss_last"] = metric.value
        elif metric.name == "accuracy":
            found[f"{key}_accuracy_last"] = metric.value
    chosen = _last(metrics, "rewards_chosen_mean")
    rejected = _last(metrics, "rewards_rejected_mean")
    if chosen is not None and rejected is not None:
        found["reward_margin"] = round(chosen - rejected, 4)
    return found


def _last(metrics: list[Metric], name: str) -> float | None:
    """The last validation value, or the last training value of a run without validation."""
    for split in ("validation", "train"):
        values = [m.value for m in metrics if m.name == name and m.split == split and m.value is not None]
        if values:
            return values[-1]
    return None


def _image(png: bytes) -> str:
    return f"![loss and reward margin](data:image/png;base64,{base64.b64encode(png).decode()})"
