"""The front door: the whole graph in one explicit `Definitions`."""

from __future__ import annotations

import dagster as dg

from nvtrader_rl_dagster.assets.checkpoints import dpo_checkpoint
from nvtrader_rl_dagster.assets.checks import CHECKS
from nvtrader_rl_dagster.assets.datasets import helpsteer3_dataset, nemo_rl_dataset, trl_dataset
from nvtrader_rl_dagster.assets.evals import eval_scores
from nvtrader_rl_dagster.assets.preferences import preference_pairs
from nvtrader_rl_dagster.assets.promotion import champion
from nvtrader_rl_dagster.jobs import IN_PROCESS, feedback_to_champion
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource
from nvtrader_rl_dagster.resources.gb10 import GB10Resource
from nvtrader_rl_dagster.sensors.automation import dataset_conversion

artifacts = ArtifactStore()

defs = dg.Definitions(
    assets=[
        # decisions → pairs
        preference_pairs,
        # pairs → the shapes that trainers read
        nemo_rl_dataset,
        helpsteer3_dataset,
        trl_dataset,
        # data sets → checkpoints → scores → the champion
        dpo_checkpoint,
        eval_scores,
        champion,
    ],
    asset_checks=CHECKS,
    jobs=[feedback_to_champion],
    sensors=[dataset_conversion],
    resources={
        "feedback": FeedbackResource(),
        "artifacts": artifacts,
        "gb10": GB10Resource(artifacts=artifacts),
    },
    executor=IN_PROCESS,
)
