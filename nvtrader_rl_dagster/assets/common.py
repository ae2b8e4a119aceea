"""What all assets share: owners, the metadata of a published folder."""

from __future__ import annotations

from typing import Any

import dagster as dg

from nvtrader_rl_dagster.files import Version

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
