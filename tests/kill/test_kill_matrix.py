"""The kill matrix: whatever is killed whenever, nothing is left, nothing is lost, and the next run starts.

The marker `kill` is left out of a normal test run; `make test-kill` runs it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kill.harness import Case, Harness
from tests.kill.kills import FATE, Kill
from tests.kill.moments import Moment
from tests.kill.record import KillRecord, append

#: In an order in which a resumed run is the next one to be killed.
QUICK = [
    Case(Kill.SUPERVISOR, Moment.STEPS, misbehave=True),
    Case(Kill.UI, Moment.SCORE, misbehave=True),
    Case(Kill.CLI, Moment.STARTED, misbehave=True),
    Case(Kill.STEP, Moment.SAVE, misbehave=True),
    Case(Kill.TREE, Moment.SCORE, misbehave=True),
]
#: Without children that hide, the tree with its supervisor is dead at once.
_POLITE = [kill for kill in Kill if kill is not Kill.TREE_AND_SUPERVISOR]
MATRIX = [
    *(Case(kill, moment, misbehave=True) for kill in Kill for moment in Moment),
    *(Case(kill, moment, misbehave=False) for kill in _POLITE for moment in Moment),
    *(Case(kill, Moment.STEPS, misbehave=True, by_sensor=True) for kill in _POLITE),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_a_kill_leaves_nothing_behind_and_loses_nothing(case: Case, harness: Harness, report: Path) -> None:
    _kill(case, harness, report)


@pytest.mark.kill
@pytest.mark.parametrize("case", MATRIX, ids=lambda case: case.name)
def test_matrix(case: Case, harness: Harness, report: Path) -> None:
    _kill(case, harness, report)


def _kill(case: Case, harness: Harness, report: Path) -> None:
    record = KillRecord(
        kill=case.kill.value,
        moment=case.moment.value,
        tree="misbehaving" if case.misbehave else "polite",
        trigger="sensor" if case.by_sensor else "launchpad",
        fate=FATE[case.kill].value,
    )
    try:
        harness.run(case, record)
        record.passed = True
    except BaseException as error:
        record.error = str(error)
        harness.recover()
        raise
    finally:
        append(report, record)
