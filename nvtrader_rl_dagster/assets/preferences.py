"""Preference pairs: what the decisions amount to, with every decision accounted for."""

import dagster as dg
from pydantic import Field

from nvtrader_rl_dagster import files
from nvtrader_rl_dagster.assets.common import OWNERS, counts_table, published
from nvtrader_rl_dagster.assets.inbox import imported_feedback
from nvtrader_rl_dagster.datasets.pair_files import PAIRS_FILE, QUARANTINE_FILE, UNPAIRED_FILE, write_pair_files
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource


class PairsConfig(dg.Config):
    """Which feedback counts."""

    through_seq: int | None = Field(
        default=None,
        ge=1,
        description="The newest feedback event that counts; empty means all. The threshold sensor sets it.",
    )


@dg.asset(deps=[imported_feedback], group_name="preferences", kinds={"jsonl"}, owners=OWNERS, code_version="1")
def preference_pairs(config: PairsConfig, feedback: FeedbackResource, artifacts: ArtifactStore) -> dg.MaterializeResult:
    """Pairs from all feedback so far: decisions = used + set aside, each with its reason."""
    store = feedback.open()
    version = files.publish(
        artifacts.home.pairs,
        lambda folder: write_pair_files(store, folder, config.through_seq),
        # The report may change (one more tie, say) while the pairs stay what they were.
        content=[PAIRS_FILE, UNPAIRED_FILE],
    )
    report = version.manifest["report"]
    bias = report["length_bias"]
    return published(
        version,
        {
            "dagster/row_count": report["usable_pairs"],
            "decisions": report["decisions"],
            "usable_pairs": report["usable_pairs"],
            "prompts": report["prompts"],
            "set_aside": sum(report["set_aside"].values()),
            "set_aside_by_reason": counts_table(report["set_aside"], "reason"),
            "pairs_by_source": counts_table(report["by_source"], "source"),
            "through_seq": version.manifest["through_seq"],
            # How far 'the longer answer wins' alone would get: a model must beat that to have learned more.
            **{f"length/{name}": value for name, value in bias.items() if value is not None},
            "first_problems": dg.MetadataValue.json(report["first_problems"]),
            "quarantine": dg.MetadataValue.path(str(version.path / QUARANTINE_FILE)),
        },
    )
