"""Jobs: the whole loop as one run."""

from __future__ import annotations

import dagster as dg

#: In one process: the heavy work is a trainer subprocess, and a fresh interpreter per small asset
#: would cost two seconds each.
IN_PROCESS = dg.in_process_executor

feedback_to_champion = dg.define_asset_job(
    "feedback_to_champion",
    selection=dg.AssetSelection.all(),
    description="Decisions to pairs, data sets, a DPO checkpoint, scores, and a champion if it is better.",
    executor_def=IN_PROCESS,
)
