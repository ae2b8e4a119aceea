"""Data sets follow the pairs: when `preference_pairs` is materialized alone, the conversions run by themselves."""

from __future__ import annotations

import dagster as dg

dataset_conversion = dg.AutomationConditionSensorDefinition(
    "dataset_conversion",
    target=dg.AssetSelection.groups("datasets"),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=15,
    description="Converts the pairs into every shape as soon as they changed.",
)
