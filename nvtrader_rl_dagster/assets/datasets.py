"""The data sets: the same pairs in the shapes that trainers read."""

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from nvtrader_rl_dagster import files
from nvtrader_rl_dagster.assets.common import OWNERS, published
from nvtrader_rl_dagster.assets.preferences import preference_pairs
from nvtrader_rl_dagster.datasets.convert import TRAIN, VALIDATION, convert_pairs
from nvtrader_rl_dagster.datasets.pair_files import PAIRS_FILE, UNPAIRED_FILE
from nvtrader_rl_dagster.datasets.shapes import SHAPES
from nvtrader_rl_dagster.datasets.split import VALIDATION_FRACTION
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore

KTO_FILE = "kto_unpaired.jsonl"
_COLUMNS = {
    "nemo_rl": {"context": "list[message]", "completions": "list[{rank, completion}]", "pair_id": "string"},
    "helpsteer3": {
        "context": "list[message]",
        "response1": "string",
        "response2": "string",
        "overall_preference": "int",
        "pair_id": "string",
    },
    "trl": {
        "prompt": "list[message]",
        "chosen": "list[message]",
        "rejected": "list[message]",
        "pair_id": "string",
    },
}


class SplitConfig(dg.Config):
    """How pairs are divided."""

    validation_fraction: float = Field(
        default=VALIDATION_FRACTION,
        gt=0,
        lt=1,
        description=(
            "Share of prompts held out, chosen by prompt hash. Keep it for the life of a store: raising it "
            "moves prompts that earlier models trained on into the held-out side."
        ),
    )


@dg.asset(
    deps=[preference_pairs],
    group_name="datasets",
    kinds={"jsonl", "nvidia"},
    owners=OWNERS,
    code_version="1",
    automation_condition=dg.AutomationCondition.eager(),
)
def nemo_rl_dataset(config: SplitConfig, artifacts: ArtifactStore) -> dg.MaterializeResult:
    """NeMo-RL's `PreferenceDataset` rows (context, ranked completions): what DPO and RM train on."""
    return _convert("nemo_rl", config, artifacts)


@dg.asset(
    deps=[preference_pairs],
    group_name="datasets",
    kinds={"jsonl", "huggingface"},
    owners=OWNERS,
    code_version="1",
    automation_condition=dg.AutomationCondition.eager(),
)
def helpsteer3_dataset(config: SplitConfig, artifacts: ArtifactStore) -> dg.MaterializeResult:
    """HelpSteer3 rows (context, two responses, overall preference).

    For exchange with other tools: NeMo-RL's own HelpSteer3 class loads from the hub only.
    """
    return _convert("helpsteer3", config, artifacts)


@dg.asset(
    deps=[preference_pairs],
    group_name="datasets",
    kinds={"jsonl", "huggingface"},
    owners=OWNERS,
    code_version="1",
    automation_condition=dg.AutomationCondition.eager(),
)
def trl_dataset(config: SplitConfig, artifacts: ArtifactStore) -> dg.MaterializeResult:
    """TRL rows: explicit-prompt preference pairs, and single decisions without a counterpart for KTO."""
    return _convert("trl", config, artifacts)


def _convert(shape: str, config: SplitConfig, artifacts: ArtifactStore) -> dg.MaterializeResult:
    pairs = artifacts.pairs()

    def write(folder: Path) -> dict[str, Any]:
        result = convert_pairs(pairs.path / PAIRS_FILE, folder, SHAPES[shape], config.validation_fraction)
        manifest = {
            "train": result.train,
            "validation": result.validation,
            "train_prompts": result.train_prompts,
            "validation_prompts": result.validation_prompts,
            "not_expressible": result.not_expressible,
            "validation_fraction": config.validation_fraction,
            "pairs_version": pairs.data_version,
            "ledger_id": pairs.manifest.get("ledger_id", ""),
            "through_seq": pairs.manifest["through_seq"],
        }
        if shape == "trl":
            # A copy of its own: a published folder is complete and never changes.
            (folder / KTO_FILE).write_bytes((pairs.path / UNPAIRED_FILE).read_bytes())
            manifest["kto_rows"] = pairs.manifest["unpaired"]
        return manifest

    content = [TRAIN, VALIDATION, *([KTO_FILE] if shape == "trl" else [])]
    version = files.publish(artifacts.home.dataset(shape), write, content)
    counted = {k: v for k, v in version.manifest.items() if isinstance(v, int) and k != "through_seq"}
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in _COLUMNS[shape].items()])
    return published(
        version,
        {
            "dagster/row_count": version.manifest["train"] + version.manifest["validation"],
            "dagster/column_schema": schema,
            **{f"rows/{name}": value for name, value in counted.items()},
        },
    )
