"""The picture of a training: loss and reward margin over steps."""

from __future__ import annotations

import io
import math

from nvtrader_rl_dagster.nemo_rl.log_parser import Metric, Split

_MAX_POINTS = 400
Curve = tuple[list[int], list[float]]


def training_curve(metrics: list[Metric]) -> bytes:
    """PNG of at most about 60 kB: left the loss with ln 2 as the starting line, right the reward margin."""
    # Not pyplot: it keeps global state, and a run worker has no display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.0), dpi=90, layout="constrained")
    loss, margin = figure.subplots(1, 2)
    for axis, title in ((loss, "DPO loss"), (margin, "reward margin (chosen - rejected)")):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step", fontsize=9)
        axis.grid(alpha=0.3)
    loss.axhline(math.log(2), color="0.6", linewidth=1, linestyle=":", label="ln 2 (no preference)")
    splits: tuple[tuple[Split, str, str], ...] = (("train", "C0", "-"), ("validation", "C1", "o-"))
    for split, colour, style in splits:
        for axis, (steps, values) in (
            (loss, curve(metrics, split, "loss")),
            (margin, margin_curve(metrics, split)),
        ):
            if steps:
                axis.plot(steps, values, style, color=colour, markersize=4, linewidth=1.4, label=split)
    for axis in (loss, margin):
        axis.legend(fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def curve(metrics: list[Metric], split: Split, name: str) -> Curve:
    """Steps and measured values of one metric, thinned to what a picture can show."""
    points = [(m.step, m.value) for m in metrics if m.split == split and m.name == name]
    measured = [(step, value) for step, value in points if value is not None]
    stride = max(1, math.ceil(len(measured) / _MAX_POINTS))
    thinned = measured[::stride]
    return [step for step, _ in thinned], [value for _, value in thinned]


def margin_curve(metrics: list[Metric], split: Split) -> Curve:
    """Mean reward of chosen minus mean reward of rejected answers."""
    chosen = dict(zip(*curve(metrics, split, "rewards_chosen_mean"), strict=True))
    rejected = dict(zip(*curve(metrics, split, "rewards_rejected_mean"), strict=True))
    steps = [step for step in chosen if step in rejected]
    return steps, [chosen[step] - rejected[step] for step in steps]
