"""The pairs of a window: feedback up to an event, and never beyond the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nvtrader_rl_dagster.datasets.pair_files import PAIRS_FILE, write_pair_files
from nvtrader_rl_dagster.feedback.events import preference, undo
from nvtrader_rl_dagster.feedback.store import FeedbackStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FeedbackStore]:
    """Four pairs, of which the fifth event takes the first back."""
    opened = FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}")
    opened.append(preference(f"prompt {n}", "good", "bad", event_id=f"pair-{n}") for n in range(4))
    opened.append([undo("pair-0")])
    yield opened
    opened.close()


@pytest.mark.parametrize(("through", "seq", "pairs"), [(3, 3, 3), (4, 4, 4), (5, 5, 3), (None, 5, 3), (900, 5, 3)])
def test_the_files_hold_the_feedback_up_to_the_window_and_say_how_far(
    store: FeedbackStore, tmp_path: Path, through: int | None, seq: int, pairs: int
):
    manifest = write_pair_files(store, tmp_path, through)
    assert (manifest["through_seq"], manifest["report"]["usable_pairs"]) == (seq, pairs)
    assert len((tmp_path / PAIRS_FILE).read_text().splitlines()) == pairs
    assert manifest["ledger_id"] == store.ledger_id
