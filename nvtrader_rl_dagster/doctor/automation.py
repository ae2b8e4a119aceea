"""Whether anything starts by itself: daemon, code location, sensors and schedules."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nvtrader_rl_dagster.doctor.finding import Finding, error, ok, warning

if TYPE_CHECKING:
    from dagster import DagsterInstance

LOCATION = "nvtrader_rl_dagster"
_UP = "start it with `nvtrader-rl up`"
#: A daemon writes a heartbeat every 30 s; a busy machine is late.
_HEARTBEAT_SECONDS = 120.0
#: A sensor that was not evaluated for so long, and for six of its intervals, is not evaluated at all.
_TICK_SECONDS = 120.0
_NEEDED_DAEMONS = ("SENSOR", "SCHEDULER", "QUEUED_RUN_COORDINATOR", "EVENT_LOG_CONSUMER", "MONITORING")


def check_daemon(instance: DagsterInstance) -> Iterator[Finding]:
    """Heartbeats of the daemons that start, retry and watch runs."""
    beats = instance.get_daemon_heartbeats()
    late = [name for name in _NEEDED_DAEMONS if not _fresh(beats.get(name))]
    if late == list(_NEEDED_DAEMONS):
        newest = max((beat.timestamp for beat in beats.values()), default=None)
        since = f", last seen {_ago(newest)}" if newest else ""
        yield warning("daemon", f"it does not run{since}: nothing starts by itself", _UP)
    elif late:
        yield error("daemon", f"no sign of life from {', '.join(late)}", f"stop it and {_UP}")
    else:
        yield ok("daemon", "it runs")
    for name, beat in sorted(beats.items()):
        if _fresh(beat) and beat.errors:
            said = beat.errors[0].message.strip().splitlines()[0]
            yield warning("daemon", f"{name} reports: {said}", "look into the output of `nvtrader-rl up`")


def check_location(instance: DagsterInstance) -> Iterator[Finding]:
    """Cursors and run keys belong to a location name; started under another one, the same sensors begin anew."""
    names, _ = _defined()
    others = {
        _location(state)
        for state in instance.all_instigator_state()
        if state.instigator_name in names and _location(state) != LOCATION
    }
    if others:
        yield warning(
            "location",
            f"sensors were also run under the location name {', '.join(sorted(others))}, with cursors of their own",
            f"always {_UP}, or with its workspace.yaml, never with -m or -f",
        )
    else:
        yield ok("location", f"the location name is {LOCATION}")


def check_sensors(instance: DagsterInstance) -> Iterator[Finding]:
    """Sensors and schedules are on, and are evaluated. A state that was set in the UI beats the code."""
    sensors, schedules = _defined()
    states = {s.instigator_name: s for s in instance.all_instigator_state() if _location(s) == LOCATION}
    bad, late = [], {}
    for name, on_by_default in {**sensors, **schedules}.items():
        kind = "sensor" if name in sensors else "schedule"
        state = states.get(name)
        if not (state.is_running if state else on_by_default):
            made = error if kind == "sensor" else warning
            bad.append(made("sensors", f"{kind} {name} is switched off", f"switch it on: Automation, {name} in the UI"))
        elif kind == "sensor" and state and (last := _not_evaluated(instance, state)):
            late[name] = last
    if late:
        said = f"{', '.join(sorted(late))}: last evaluated {_ago(max(late.values()))}, although the daemon runs"
        remedy = "reload the code location under Deployment in the UI, or restart `nvtrader-rl up`"
        bad.append(error("sensors", said, remedy))
    yield from bad or [ok("sensors", f"{len(sensors)} sensors and {len(schedules)} schedules are on")]


def _defined() -> tuple[dict[str, bool], dict[str, bool]]:
    """Sensors and schedules of the code: whether each is on by default."""
    import dagster as dg

    from nvtrader_rl_dagster.definitions import defs

    repository = defs.get_repository_def()
    return (
        {s.name: s.default_status is dg.DefaultSensorStatus.RUNNING for s in repository.sensor_defs},
        {s.name: s.default_status is dg.DefaultScheduleStatus.RUNNING for s in repository.schedule_defs},
    )


def _not_evaluated(instance: DagsterInstance, state: Any) -> float | None:
    """When a sensor was last evaluated, if that is too long ago and the daemon runs; else None."""
    data = state.instigator_data
    last: float | None = data.last_tick_start_timestamp or data.last_tick_timestamp if data else None
    if not last or not _fresh(instance.get_daemon_heartbeats().get("SENSOR")):
        return None
    return last if time.time() - last > max(_TICK_SECONDS, 6 * (data.min_interval or 0)) else None


def _location(state: Any) -> str:
    name: str = state.origin.repository_origin.code_location_origin.location_name
    return name


def _fresh(beat: Any) -> bool:
    return beat is not None and time.time() - beat.timestamp < _HEARTBEAT_SECONDS


def _ago(timestamp: float) -> str:
    seconds = time.time() - timestamp
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
