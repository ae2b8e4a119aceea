"""`nvtrader-rl feedback`: decisions in, decisions out, and what they amount to."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import typer

from nvtrader_rl_dagster.cli.console import console, facts, fail, print_json
from nvtrader_rl_dagster.resources.feedback import FeedbackResource

if TYPE_CHECKING:
    from nvtrader_rl_dagster.feedback.store import FeedbackStore

app = typer.Typer(help="Approve/reject feedback: import, record, count, export.", no_args_is_help=True)

AsJson = typer.Option(False, "--json", help="Print one JSON object.")


class ExportShape(str, Enum):
    """What `feedback export` writes."""

    EVENTS = "events"
    TRL = "trl"
    NEMO_RANK = "nemo_rank"
    HELPSTEER3 = "helpsteer3"


def open_store() -> FeedbackStore:
    """The store of this home."""
    return FeedbackResource().open()
