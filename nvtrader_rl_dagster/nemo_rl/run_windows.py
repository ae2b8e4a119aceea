"""What the state folder knows about windows: run records, and the note of a window that failed before it had one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from nvtrader_rl_dagster.feedback.trigger import Outcome, Request, Standing, Window, newest
from nvtrader_rl_dagster.files import read_json, write_json
from nvtrader_rl_dagster.nemo_rl.reconcile import is_looked_after
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunState, RunStore

#: The training whose success moves the watermark.
ALGO = "dpo"
_ENDED = {RunState.SUCCEEDED: Outcome.SPENT, RunState.CANCELLED: Outcome.CANCELLED}
#: One GPU: whatever is still open is among the newest runs.
NEWEST = 50


@dataclass(frozen=True)
class FailedWindow:
    """A window whose run failed before a run folder existed. One file per store holds the newest.

    window: its key. when: ISO 8601 in UTC.
    """

    window: str
    dagster_run_id: str
    code: str
    line: str
    advice: str
    when: str

    def write(self, folder: Path) -> None:
        """Keep this as the newest failed window of its store. An older window never replaces a newer one."""
        window = Window.parse(self.window)
        if window is None:
            raise ValueError(f"{self.window!r} is no window")
        known = failed_request(folder, window.ledger_id)
        if known is None or known.through_seq <= window.through_seq:
            write_json(_file(folder, window.ledger_id), asdict(self))


def failed_request(folder: Path, ledger_id: str) -> Request | None:
    """The newest window of this store that failed without a run folder."""
    file = _file(folder, ledger_id)
    if not file.exists():
        return None
    failed = FailedWindow(**read_json(file))
    window = Window.parse(failed.window)
    return Request(window.through_seq, Outcome.FAILED, f"{failed.code}: {failed.line}") if window else None


def records(runs: RunStore) -> Iterator[tuple[RunDirectory, RunRecord]]:
    """Run folders with their records, newest first; without those that are pruned meanwhile."""
    for directory in runs.all():
        with contextlib.suppress(FileNotFoundError):
            yield directory, directory.record()


def standing_of_runs(runs: RunStore, ledger_id: str) -> Standing:
    """What the run folders say: the newest trained window, the newest requested one, and whether one is in flight.

    Reads the newest records, and older ones only until a success is found.
    """
    trained, busy = 0, ""
    requests: dict[int, Request] = {}
    for number, (directory, record) in enumerate(records(runs)):
        if number >= NEWEST and trained:
            break
        outcome = _outcome(directory, record)
        if outcome is Outcome.OPEN and not busy:
            busy = f"training {record.run_id}"
        through = record.trained_through_seq or 0
        if record.algo != ALGO or record.ledger_id != ledger_id:
            continue
        if record.state is RunState.SUCCEEDED:
            trained = max(trained, through)
        requests.setdefault(through, Request(through, outcome, _detail(record)))
    return Standing(trained, newest(*requests.values()), busy)


def _outcome(directory: RunDirectory, record: RunRecord) -> Outcome:
    if record.ended_for_good:
        return _ENDED.get(record.state, Outcome.FAILED)
    return Outcome.OPEN if is_looked_after(directory) else Outcome.FAILED


def _detail(record: RunRecord) -> str:
    failure = record.failure or {"code": record.state.value, "line": f"training run {record.run_id}"}
    return f"{failure['code']}: {failure['line']}"


def _file(folder: Path, ledger_id: str) -> Path:
    return folder / f"{ledger_id}.json"
