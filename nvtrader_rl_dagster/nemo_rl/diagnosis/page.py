"""The page of known failures, `docs/gotchas.md`, out of the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nvtrader_rl_dagster.nemo_rl.diagnosis.data import DATA
from nvtrader_rl_dagster.nemo_rl.diagnosis.failure import KnownFailure
from nvtrader_rl_dagster.nemo_rl.diagnosis.install import INSTALL
from nvtrader_rl_dagster.nemo_rl.diagnosis.resources import RESOURCES
from nvtrader_rl_dagster.nemo_rl.diagnosis.table import TABLE
from nvtrader_rl_dagster.nemo_rl.diagnosis.training import TRAINING

COMMAND = "python -m nvtrader_rl_dagster.nemo_rl.diagnosis > docs/gotchas.md"
_INTRODUCTION = f"""# When a training fails

A failed run has one named failure: its code, the line of the log that shows it, and what to do.
`nvtrader-rl runs show` prints it, and the Dagster run carries it. The name comes from the exception that ended
NeMo-RL's driver, or, where that only says that a worker is gone, from the earliest error of a worker or of Ray after
the last step. Warnings never count, and neither does what Python prints while it shuts down. An error that is not on
this page has the code `exit`.

This page is made from the table that the diagnosis uses:
`{COMMAND}`.
"""
_SECTIONS = (
    ("Installation", INSTALL),
    ("Rows and data sets", DATA),
    ("Memory, disk, Ray, models", RESOURCES),
    ("Configuration and training", TRAINING),
)


def page() -> str:
    """The whole page as Markdown."""
    ten = sorted((f for f in TABLE if f.gotcha is not None), key=lambda f: f.gotcha or 0)
    parts = [_INTRODUCTION, *_section("The ten of the installation", ten)]
    for title, failures in _SECTIONS:
        parts += _section(title, [failure for failure in failures if failure.gotcha is None])
    return "\n".join(parts)


def _section(title: str, failures: Iterable[KnownFailure]) -> Iterator[str]:
    yield f"## {title}\n"
    for failure in failures:
        number = f"{failure.gotcha}. " if failure.gotcha is not None else ""
        yield f"### {number}{failure.title} (`{failure.code}`)\n"
        yield "```\n" + "\n".join(failure.shows.split(" · ")) + "\n```\n"
        yield f"{_text(failure.meaning)}\n"
        if failure.handled:
            yield f"- Taken care of: {_text(failure.handled)}"
        yield f"- What to do: {_text(failure.remedy)}\n"


def _text(sentences: str) -> str:
    return sentences.replace("<", r"\<")
