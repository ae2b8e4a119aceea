"""NeMo-RL rank rows: `context` and `completions[{rank, completion}]`; the lower rank is better."""

from __future__ import annotations

import itertools
import re
from typing import Any

from nvtrader_rl_dagster.feedback.events import ONE_VOTE, TIE, preference
from nvtrader_rl_dagster.feedback.importers.base import ImportOptions, Outcome, Row, named, with_system
from nvtrader_rl_dagster.feedback.messages import to_messages
from nvtrader_rl_dagster.feedback.reasons import RowRejected


def read(row: Row, options: ImportOptions, source: str) -> list[Outcome]:
    """One comparison, or all of a row's comparisons. `task_name` and other columns are dropped."""
    if row.get("context") is None:
        raise RowRejected("missing_context", "context", "missing or null")
    context = with_system(row, to_messages(row["context"], "user", "context"))
    ranked = _ranked(row.get("completions"))
    if options.ranks == "all_pairs":
        chosen_pairs = list(itertools.combinations(ranked, 2))
    else:
        # Positions break ties between equal ranks, so that the same row always gives the same pair.
        chosen_pairs = [(ranked[0], ranked[-1])]
    outcomes: list[Outcome] = []
    for (rank, place, better), (other, other_place, worse) in chosen_pairs:
        names = {
            "prompt": "context",
            "chosen": f"completions[{place}].completion",
            "rejected": f"completions[{other_place}].completion",
        }
        votes = TIE if rank == other else ONE_VOTE
        try:
            outcomes.append(named(names, preference, context, better, worse, votes=votes, source=source))
        except RowRejected as refused:
            outcomes.append(refused)
    return outcomes


def _ranked(completions: object) -> list[tuple[int, int, Any]]:
    """(rank, position, completion), best first."""
    if not isinstance(completions, list) or len(completions) < 2:
        raise RowRejected("bad_rank", "completions", "expected at least two completions")
    ranked = []
    for i, item in enumerate(completions):
        if not isinstance(item, dict):
            raise RowRejected("not_text", f"completions[{i}]", f"found {type(item).__name__}")
        rank = item.get("rank")
        if isinstance(rank, str) and re.fullmatch(r"-?\d{1,9}", rank, re.ASCII):
            rank = int(rank)
        if type(rank) is not int:
            raise RowRejected("bad_rank", f"completions[{i}].rank", f"found {rank!r:.40}")
        ranked.append((rank, i, item.get("completion")))
    ranked.sort(key=lambda entry: entry[:2])
    return ranked
