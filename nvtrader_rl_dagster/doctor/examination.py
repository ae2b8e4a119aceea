"""All checks, one after the other. A check that breaks becomes a finding itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from nvtrader_rl_dagster.doctor import (
    automation,
    capacity,
    dagster_settings,
    gpu,
    inputs,
    instance,
    ray_clusters,
    state_folder,
    trainers,
    trainings,
)
from nvtrader_rl_dagster.doctor.finding import Finding, error, warning
from nvtrader_rl_dagster.home import Home

if TYPE_CHECKING:
    from dagster import DagsterInstance

_Examined = TypeVar("_Examined")

_OF_HOME: dict[str, Callable[[Home], Iterator[Finding]]] = {
    "state folder": state_folder.check_home,
    "DAGSTER_HOME": state_folder.check_dagster_home,
    "dagster.yaml": dagster_settings.check_dagster_settings,
    "settings": inputs.check_settings,
    "feedback": inputs.check_feedback,
    "lease": trainings.check_lease,
    "leftovers": trainings.check_leftovers,
    "trainer": trainers.check_trainer,
    "NeMo-RL": trainers.check_nemo_rl,
    "embedded trainer": trainers.check_embedded,
    "GPU": gpu.check_gpu,
    "disk": capacity.check_disk,
    "memory": capacity.check_memory,
    "Ray's folder": capacity.check_ray_folder,
    "Ray clusters": ray_clusters.check_ray_clusters,
}
_OF_INSTANCE: dict[str, Callable[[DagsterInstance], Iterator[Finding]]] = {
    f"pool {instance.POOL}": instance.check_pool,
    "slots": instance.check_slots,
    "Dagster runs": instance.check_lost_runs,
    "daemon": automation.check_daemon,
    "location": automation.check_location,
    "sensors": automation.check_sensors,
}


def examine(home: Home) -> list[Finding]:
    """What all checks found, in a fixed order."""
    found = [finding for name, check in _OF_HOME.items() for finding in _guarded(name, check, home)]
    return [*found, *_guarded("Dagster", _of_instance, home)]


def _of_instance(home: Home) -> Iterator[Finding]:
    with instance.opened(home) as opened:
        if opened is None:
            yield warning("Dagster", "it has not been started on this home yet", "start it with `nvtrader-rl up`")
            return
        for name, check in _OF_INSTANCE.items():
            yield from _guarded(name, check, opened)


def _guarded(name: str, check: Callable[[_Examined], Iterator[Finding]], examined: _Examined) -> Iterator[Finding]:
    try:
        yield from check(examined)
    except Exception as problem:
        remedy = "correct what the message says; if that is no help, report it as a bug of `nvtrader-rl doctor`"
        yield error(name, f"could not be checked: {type(problem).__name__}: {problem}", remedy)
