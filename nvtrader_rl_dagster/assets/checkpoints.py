"""Trained checkpoints."""

from collections.abc import Iterator

import dagster as dg

from nvtrader_rl_dagster.assets.common import OWNERS
from nvtrader_rl_dagster.assets.datasets import nemo_rl_dataset
from nvtrader_rl_dagster.nemo_rl.configs import DpoOptions
from nvtrader_rl_dagster.resources.gb10 import GB10Resource


class DpoTraining(dg.Config, DpoOptions):
    """Settings of one DPO training; the defaults fit the built-in model on a laptop."""


@dg.asset(
    deps=[nemo_rl_dataset],
    group_name="training",
    kinds={"pytorch", "nvidia"},
    owners=OWNERS,
    code_version="1",
    pool="gpu",
)
def dpo_checkpoint(
    context: dg.AssetExecutionContext, config: DpoTraining, gb10: GB10Resource
) -> Iterator[dg.AssetObservation | dg.MaterializeResult]:
    """A policy trained by DPO on all preference pairs so far, from the base model."""
    yield from gb10.train("dpo", config, context=context).stream()
