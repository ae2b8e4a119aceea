"""The front door: the whole graph in one explicit `Definitions`."""

from __future__ import annotations

import dagster as dg

import nvtrader_rl_dagster.loading  # noqa: F401 (before our own modules)
from nvtrader_rl_dagster.assets.champion_scores import champion_scores
from nvtrader_rl_dagster.assets.checkpoints import dpo_checkpoint
from nvtrader_rl_dagster.assets.checks import CHECKS
from nvtrader_rl_dagster.assets.datasets import helpsteer3_dataset, nemo_rl_dataset, trl_dataset
from nvtrader_rl_dagster.assets.evals import eval_scores
from nvtrader_rl_dagster.assets.inbox import imported_feedback
from nvtrader_rl_dagster.assets.preferences import preference_pairs
from nvtrader_rl_dagster.assets.promotion import champion
from nvtrader_rl_dagster.jobs import IN_PROCESS, champion_evaluation, feedback_to_champion, import_feedback
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource
from nvtrader_rl_dagster.resources.gb10 import GB10Resource
from nvtrader_rl_dagster.schedules import nightly_loop, weekly_champion
from nvtrader_rl_dagster.sensors.automation import dataset_conversion
from nvtrader_rl_dagster.sensors.failures import training_failed
from nvtrader_rl_dagster.sensors.inbox import feedback_inbox
from nvtrader_rl_dagster.sensors.janitor import gpu_janitor
from nvtrader_rl_dagster.sensors.threshold import preference_threshold
from nvtrader_rl_dagster.settings import device_settings

artifacts = ArtifactStore()

defs = dg.Definitions(
    assets=[
        # dropped files → decisions → pairs
        imported_feedback,
        preference_pairs,
        # pairs → the shapes that trainers read
        nemo_rl_dataset,
        helpsteer3_dataset,
        trl_dataset,
        # data sets → checkpoints → scores → the champion
        dpo_checkpoint,
        eval_scores,
        champion,
        # the champion, looked at again once a week
        champion_scores,
    ],
    asset_checks=CHECKS,
    jobs=[feedback_to_champion, import_feedback, champion_evaluation],
    sensors=[preference_threshold, training_failed, dataset_conversion, feedback_inbox, gpu_janitor],
    schedules=[nightly_loop, weekly_champion],
    resources={
        "feedback": FeedbackResource(),
        "artifacts": artifacts,
        "gb10": GB10Resource(artifacts=artifacts, **device_settings()),
    },
    executor=IN_PROCESS,
)
