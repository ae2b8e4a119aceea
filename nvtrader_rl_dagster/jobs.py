"""Jobs: the whole loop as one run, and the two small ones beside it."""

from __future__ import annotations

import dagster as dg

#: In one process: the heavy work is a trainer subprocess, and a fresh interpreter per small asset
#: would cost two seconds each.
IN_PROCESS = dg.in_process_executor

feedback_to_champion = dg.define_asset_job(
    "feedback_to_champion",
    # The champion is looked at again once a week, not in each loop: it has just been scored there.
    selection=dg.AssetSelection.all() - dg.AssetSelection.assets("champion_scores"),
    description="Decisions to pairs, data sets, a DPO checkpoint, scores, and a champion if it is better.",
    executor_def=IN_PROCESS,
)

import_feedback = dg.define_asset_job(
    "import_feedback",
    selection=dg.AssetSelection.assets("imported_feedback"),
    description="Imports the feedback files that were dropped into the inbox.",
    executor_def=IN_PROCESS,
)

champion_evaluation = dg.define_asset_job(
    "champion_evaluation",
    selection=dg.AssetSelection.assets("champion_scores"),
    description="Scores the champion on the held-out pairs of today, to see whether it is still better than its base.",
    executor_def=IN_PROCESS,
)
