"""What assets share: owners, the metadata of a published folder, when held-out pairs are fair."""

from __future__ import annotations

from typing import Any

import dagster as dg

from nvtrader_rl_dagster.files import Version
from nvtrader_rl_dagster.nemo_rl.configs import PreferenceData

OWNERS = ["team:nvtrader-rl"]


def published(version: Version, metadata: dict[str, Any]) -> dg.MaterializeResult:
    """A materialization whose data version is the content hash: an equal result leaves downstream fresh."""
    return dg.MaterializeResult(
        data_version=dg.DataVersion(version.data_version),
        metadata={**metadata, "folder": dg.MetadataValue.path(str(version.path))},
    )


def counts_table(counts: dict[str, int], name: str) -> dg.TableMetadataValue:
    """Counts, largest first, as a table of two columns."""
    records = [
        dg.TableRecord({name: key, "count": value})
        for key, value in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    schema = dg.TableSchema([dg.TableColumn(name, "string"), dg.TableColumn("count", "int")])
    return dg.MetadataValue.table(records, schema=schema)


def refuse_unfair(held_out: PreferenceData, trained: dict[str, dict[str, Any]]) -> None:
    """No score without held-out pairs, nor on prompts that a model was trained on."""
    if held_out.validation_rows == 0:
        raise dg.Failure("No held-out pair: import feedback on more prompts.", allow_retries=False)
    for name, manifest in trained.items():
        # The split is by prompt hash below the fraction, so only a raised fraction moves prompts out of train.
        if held_out.validation_fraction > manifest["validation_fraction"]:
            raise dg.Failure(
                f"The {name} {manifest['checkpoint_id']} was trained with validation_fraction "
                f"{manifest['validation_fraction']}, so some of the prompts held out now, at "
                f"{held_out.validation_fraction}, were in its training. Set the fraction back, or train again.",
                allow_retries=False,
            )
