"""PandaLM rows: two responses to an instruction, judged by several annotators (0 tie, 1 or 2)."""

from __future__ import annotations

import re

from nvtrader_rl_dagster.feedback.events import preference
from nvtrader_rl_dagster.feedback.importers.base import ImportOptions, Outcome, Row, instruction_text, named
from nvtrader_rl_dagster.feedback.reasons import RowRejected

_ANNOTATOR = re.compile(r"annotator\d+")


def read(row: Row, options: ImportOptions, source: str) -> list[Outcome]:
    """One comparison with the annotators' votes; the side with more votes is put as chosen."""
    votes = [0, 0, 0]  # tie, response1, response2
    for key, value in row.items():
        if _ANNOTATOR.fullmatch(key):
            if type(value) is not int or not 0 <= value <= 2:
                raise RowRejected("bad_preference", key, f"found {value!r:.40}, expected 0, 1 or 2")
            votes[value] += 1
    if not any(votes):
        raise RowRejected("bad_preference", "annotator1", "no annotator")
    for key in ("response1", "response2"):
        if not isinstance(row.get(key), str):
            raise RowRejected("not_text", key, f"found {row.get(key)!r:.40}")
    one, two = ("response1", "response2") if votes[1] >= votes[2] else ("response2", "response1")
    names = {"prompt": "instruction", "chosen": one, "rejected": two}
    ballot = (max(votes[1:]), min(votes[1:]), votes[0])
    prompt = instruction_text(row)
    return [named(names, preference, prompt, row[one], row[two], votes=ballot, source=source)]
