"""The public functions about training runs. The package `nvtrader_rl_dagster.nemo_rl` exports them."""

from __future__ import annotations

from pathlib import Path

from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.cancel import request_cancel
from nvtrader_rl_dagster.nemo_rl.run_log import LogPage, tail
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunState, RunStore


def list_runs(
    algo: str | None = None,
    state: RunState | str | None = None,
    limit: int | None = None,
    *,
    home: Path | str | None = None,
) -> list[RunRecord]:
    """Records of the runs, newest first; only those of an algorithm or in a state when one is given.

    `home` is the state folder, by default `NVTRADER_RL_HOME`. Raises `ValueError` for an unknown algorithm, an
    unknown state or a negative limit.
    """
    if algo is not None and algo not in ALGOS:
        raise ValueError(f"algo={algo!r} must be one of: {', '.join(ALGOS)}")
    if state is not None and state not in list(RunState):
        raise ValueError(f"state={state!r} must be one of: {', '.join(s.value for s in RunState)}")
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit} must be at least 0")
    found: list[RunRecord] = []
    for directory in _store(home).all():
        if limit is not None and len(found) >= limit:
            break
        try:
            record = directory.record()
        except FileNotFoundError:
            continue  # pruned meanwhile
        if algo in (None, record.algo) and state in (None, record.state):
            found.append(record)
    return found


def get_run(run_id: str, *, home: Path | str | None = None) -> RunRecord:
    """The record of one run. Raises `KeyError` for an id that is no run."""
    return _record(_store(home).get(run_id))


def cancel_run(run_id: str, by: str = "cancel_run", *, home: Path | str | None = None) -> RunRecord:
    """Ask for a run to be stopped and return its record at once; `by` says who asked.

    The supervisor stops the process tree and then writes the state `cancelled`. A second call, and a call for
    a run that has ended, change nothing. Raises `KeyError` for an id that is no run.
    """
    directory = _store(home).get(run_id)
    record = _record(directory)
    # A failed run may be about to be resumed: the request keeps it from that.
    if record.state not in (RunState.SUCCEEDED, RunState.CANCELLED):
        request_cancel(directory, by)
    return record


def tail_log(
    run_id: str, since_line: int | None = None, max_lines: int = 200, *, home: Path | str | None = None
) -> LogPage:
    """Lines of a run's log after `since_line`, at most `max_lines`; without `since_line` the last ones.

    Follow a run by passing the page's `next_line` as the next `since_line`. Raises `KeyError` for an id that is
    no run and `ValueError` for negative arguments.
    """
    return tail(_store(home).get(run_id).log, since_line, max_lines)


def _store(home: Path | str | None) -> RunStore:
    return RunStore(Home.from_env(home).runs)


def _record(directory: RunDirectory) -> RunRecord:
    try:
        return directory.record()
    except FileNotFoundError as error:
        raise KeyError(f"training run {directory.run_id} was removed") from error
