"""Dagster runs whose worker process is gone without Dagster's knowledge: found, and ended.

The default run launcher has no health check: after a power cut, or when the code server dies together with the worker,
such a run stays STARTED, and the next one waits for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import orjson
from dagster._core.events import EngineEventData
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.tags import GRPC_INFO_TAG

from nvtrader_rl_dagster.nemo_rl.process_end import is_child_of, listens, why_gone

_ACTIVE = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_TELLING = {dg.DagsterEventType.ENGINE_EVENT, dg.DagsterEventType.RUN_STARTING, dg.DagsterEventType.RUN_START}
#: A worker says its pid 1 to 3 s after the launch, on a loaded machine much later.
_BOOT_SECONDS = 20.0
#: A code server that lives reports the crash of its worker within a second, with the exit code.
_PATIENCE_SECONDS = 3.0
_NEWEST_EVENTS = 20
_LOCAL = ("localhost", "127.0.0.1", socket.gethostname())
_CODE_SERVER = ("dagster", "api", "grpc")
_ASKED = "gpu_janitor asks the worker to stop: it has no code server that could."


@dataclass(frozen=True)
class LostRun:
    """A run that nobody executes any more. why: what was found."""

    run: dg.DagsterRun
    why: str


@dataclass(frozen=True)
class _Worker:
    """seen: the last time (seconds since 1970) it wrote an event."""

    pid: int
    seen: float


def lost_runs(instance: dg.DagsterInstance) -> list[LostRun]:
    """Runs that count as in progress and have no worker. Only judges workers of this machine."""
    found = []
    for run in _active_runs(instance):
        events = instance.all_logs(run.run_id, of_type=_TELLING)
        worker = _worker(instance, run, events)
        why = why_gone(worker.pid, worker.seen) if worker else _why_never_started(run, events)
        if why:
            found.append(LostRun(run, why))
    return found


def end_lost_runs(instance: dg.DagsterInstance) -> list[str]:
    """Report them as failed, or as canceled where that was asked for, and free their slots; one sentence for each.

    A failure reported like this is retried like a crash (tag `dagster/max_retries`).
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (lost := lost_runs(instance)) and time.monotonic() < deadline:
        time.sleep(0.5)
    done = []
    for item in lost:
        run = instance.get_run_by_id(item.run.run_id)
        if run is None or run.is_finished:
            continue
        message = f"Nobody executes this run any more: {item.why}. Reported by gpu_janitor."
        if run.status is dg.DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, message)
        else:
            instance.report_run_failed(run, message)
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        ended = "canceled" if run.status is dg.DagsterRunStatus.CANCELING else "failed"
        done.append(f"Dagster run {run.run_id[:8]} is {ended} now: {item.why}")
    return done


def pass_on_cancels(instance: dg.DagsterInstance) -> list[str]:
    """Interrupt workers of CANCELING runs that have no code server; one sentence for each.

    Dagster sends a cancel through the code server that is the worker's parent. When that has died, or the run came from
    the command line, it would mark the run as canceled after `cancel_timeout_seconds` while the worker trains on.
    """
    done = []
    for run in _active_runs(instance):
        if run.status is not dg.DagsterRunStatus.CANCELING:
            continue
        events = instance.all_logs(run.run_id, of_type=_TELLING)
        worker = _worker(instance, run, events)
        if worker is None or why_gone(worker.pid, worker.seen) or any(_ASKED in e.message for e in events):
            continue
        if is_child_of(worker.pid, _CODE_SERVER):
            continue
        # A second interrupt would break off the clean-up that the first one began, so this is written down first.
        instance.report_engine_event(_ASKED, run)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGINT)
        done.append(f"Dagster run {run.run_id[:8]}: passed the cancel on to its worker (pid {worker.pid})")
    return done


def _active_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    if not isinstance(instance.run_launcher, dg.DefaultRunLauncher):
        return []  # other launchers put workers elsewhere and check on them themselves
    return [run for run in instance.get_runs(dg.RunsFilter(statuses=_ACTIVE)) if _is_here(run)]


def _worker(instance: dg.DagsterInstance, run: dg.DagsterRun, events: Sequence[EventLogEntry]) -> _Worker | None:
    """The run worker: what the executor and the code server's child say about themselves as `pid`."""
    telling = [(pid, event.timestamp) for event in events if (pid := _pid_of(event)) is not None]
    if not telling:
        return None
    pid, seen = telling[-1]
    # Step events of the in-process executor come from the worker, too, and are newer.
    newest = instance.get_records_for_run(run.run_id, limit=_NEWEST_EVENTS, ascending=False).records
    for event in (record.event_log_entry for record in newest):
        if event.dagster_event is not None and event.dagster_event.pid == pid:
            seen = max(seen, event.timestamp)
    return _Worker(pid, seen)


def _pid_of(event: EventLogEntry) -> int | None:
    told = event.dagster_event
    if told is None:
        return None
    if told.event_type is dg.DagsterEventType.RUN_START:
        return told.pid
    if isinstance(told.event_specific_data, EngineEventData) and told.step_key is None:
        pid = told.event_specific_data.metadata.get("pid")
        return int(str(pid.value)) if pid is not None else None
    return None


def _why_never_started(run: dg.DagsterRun, events: Sequence[EventLogEntry]) -> str | None:
    """Why no worker will come for a run that is being started; None while one may."""
    launched = [e.timestamp for e in events if e.dagster_event_type is dg.DagsterEventType.RUN_STARTING]
    if not launched or time.time() - launched[-1] < _BOOT_SECONDS or _code_server_listens(run):
        return None
    return "it was being started when its code server ended"


def _code_server_listens(run: dg.DagsterRun) -> bool:
    """Whether the server that the run was handed to is up; False for a run that was not handed to one."""
    server = _server(run)
    if socket_path := server.get("socket"):
        return listens(socket_path)
    return bool(server) and listens((server["host"], server["port"]))


def _is_here(run: dg.DagsterRun) -> bool:
    """Whether the worker would run on this machine. A run from the command line names no server."""
    server = _server(run)
    return bool(server.get("socket")) or server.get("host", "localhost") in _LOCAL


def _server(run: dg.DagsterRun) -> dict[str, Any]:
    server: dict[str, Any] = orjson.loads(run.tags.get(GRPC_INFO_TAG) or "{}")
    return server
