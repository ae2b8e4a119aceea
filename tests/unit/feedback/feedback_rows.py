"""Small rows and events that the tests of feedback share."""

from __future__ import annotations

import json
from typing import Any

from nvtrader_rl_dagster.feedback.pair_report import iter_pairs
from nvtrader_rl_dagster.feedback.store import FeedbackStore

WILD = "NVDA ▲ +3.2 % — €1.2bn, 買い, عربي, 👩🏽‍💻 e\u0301 \u2028 \x00 \x7f"


def lines(*rows: Any) -> bytes:
    """Rows as JSON lines."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def turn(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def rank_row(number: int, *ranks: Any, **extra: Any) -> dict[str, Any]:
    """The row R(i) of the cases: one user turn, answers "a", "b", ... with ranks 0, 1, ... ."""
    completions = [
        {"rank": rank, "completion": [turn("assistant", "abcdef"[place])]} for place, rank in enumerate(ranks or (0, 1))
    ]
    return {"context": [turn("user", f"q{number}")], "completions": completions, **extra}


def trl_row(number: int, chosen: Any = "good", rejected: Any = "bad", **extra: Any) -> dict[str, Any]:
    return {"prompt": f"q{number}", "chosen": chosen, "rejected": rejected, **extra}


def pair_texts(store: FeedbackStore) -> set[tuple[str, str, str]]:
    """(last turn of the prompt, chosen, rejected) of every usable pair."""
    return {
        (pair.prompt[-1]["content"], pair.chosen[-1]["content"], pair.rejected[-1]["content"])
        for pair in iter_pairs(store)
    }
