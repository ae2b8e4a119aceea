"""Runs the real loop on a small model: the helper of the asset, end-to-end and real-data tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import orjson

from nvtrader_rl_dagster.definitions import defs
from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.home import Home

#: Learns the rule of `clear_preferences` within a few steps.
FAST = {"base_model": "builtin:tiny", "batch_pairs": 8, "learning_rate": 2e-3, "max_steps": 8}


def clear_preferences(path: Path, prompts: int = 60) -> Path:
    """Feedback with one obvious rule, so that a model of two million parameters learns it in a few steps."""
    rows = [
        {
            "prompt": f"Comment on fund {n} in week {n % 7}.",
            "chosen": f"Fund {n} rose; the risk is rates.",
            "rejected": f"Great great great returns for fund {n}!",
        }
        for n in range(prompts)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def import_into(home: Path, *files: Path) -> dict[str, Any]:
    """Import files into the store of a state folder; the import's report."""
    store = FeedbackStore(Home(home).store_url)
    try:
        return import_paths(store, files).to_dict()
    finally:
        store.close()


def run_job(
    instance: dg.DagsterInstance,
    training: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | None = None,
    assets: list[str] | None = None,
    split: dict[str, Any] | None = None,
) -> dg.ExecuteInProcessResult:
    """Execute `feedback_to_champion`, or the named assets of it, without raising on failure."""
    ops: dict[str, Any] = {}
    if assets is None or "dpo_checkpoint" in assets:
        ops["dpo_checkpoint"] = {"config": {**FAST, **(training or {})}}
    if split:
        ops["nemo_rl_dataset"] = {"config": split}
    if evaluation and (assets is None or "eval_scores" in assets):
        ops["eval_scores"] = {"config": evaluation}
    return defs.resolve_job_def("feedback_to_champion").execute_in_process(
        instance=instance,
        run_config={"ops": ops},
        asset_selection=[dg.AssetKey(name) for name in assets] if assets else None,
        raise_on_error=False,
    )


def metadata(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    """Values of the metadata of an asset's materialization in this run."""
    (event,) = result.asset_materializations_for_node(asset)
    return {name: value.value for name, value in event.metadata.items()}


def failed_checks(result: dg.ExecuteInProcessResult) -> list[str]:
    """Names of the checks that did not pass."""
    return [e.check_name for e in result.get_asset_check_evaluations() if not e.passed]
