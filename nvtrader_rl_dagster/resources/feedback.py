"""The feedback store as a Dagster resource."""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from nvtrader_rl_dagster.home import Home

if TYPE_CHECKING:
    from nvtrader_rl_dagster.feedback.store import FeedbackStore


class FeedbackResource(dg.ConfigurableResource):
    """Approve/reject decisions, append-only."""

    url: str = Field(
        default="",
        description=("SQLAlchemy URL of the store; empty means NVTRADER_RL_STORE, else SQLite in the state folder."),
    )

    def open(self) -> "FeedbackStore":
        """The store, its tables made if they are missing. Imported late: SQLAlchemy is not cheap."""
        from nvtrader_rl_dagster.feedback.store import FeedbackStore

        return FeedbackStore(self.url or Home.from_env().store_url)

    def existing(self) -> "FeedbackStore | None":
        """The store, opened without writing anything; None where no feedback was stored yet."""
        from nvtrader_rl_dagster.feedback.store import FeedbackStore

        return FeedbackStore.existing(self.url or Home.from_env().store_url)
