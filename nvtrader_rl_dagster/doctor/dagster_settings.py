"""Settings in `dagster.yaml` without which two trainings collide, or a killed one blocks the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nvtrader_rl_dagster.doctor.finding import Finding, Status, error, ok, warning
from nvtrader_rl_dagster.home import Home


@dataclass(frozen=True)
class _Setting:
    """key: where it stands. good: whether a value (None: not set) is. wanted: the line to write. why: what happens."""

    key: str
    good: Callable[[Any], bool]
    wanted: str
    why: str
    status: Status = Status.ERROR


_SETTINGS = (
    _Setting("concurrency.pools.default_limit", lambda v: v == 1, "1", "two trainings may start on one GPU"),
    _Setting(
        "concurrency.pools.granularity",
        lambda v: v in (None, "op"),
        "op",
        "imports and conversions wait for the GPU",
        Status.WARNING,
    ),
    _Setting("run_monitoring.enabled", lambda v: v is True, "true", "a run that lost its worker stays for ever"),
    _Setting(
        "run_monitoring.free_slots_after_run_end_seconds",
        bool,
        "10",
        "a crashed run keeps its slot of the GPU for ever when gpu_janitor is off",
    ),
    _Setting(
        "run_monitoring.max_resume_run_attempts",
        lambda v: not v,
        "0",
        "a cancel does not reach the trainer",
    ),
    _Setting(
        "run_monitoring.start_timeout_seconds",
        lambda v: v is not None and 0 < v <= 60,
        "60",
        "a lost launch keeps the next training waiting for three minutes",
        Status.WARNING,
    ),
    _Setting(
        "run_queue.max_user_code_failure_retries",
        bool,
        "60",
        "a training that is due while the code server restarts fails",
        Status.WARNING,
    ),
    _Setting("run_retries.enabled", lambda v: v is True, "true", "a crashed training is not resumed", Status.WARNING),
    _Setting(
        "run_retries.retry_on_asset_or_op_failure",
        lambda v: v is False,
        "false",
        "a training that failed for a reason is run again for the same reason",
        Status.WARNING,
    ),
    _Setting("sensors.use_threads", lambda v: v is True, "true", "one slow sensor delays all", Status.WARNING),
)


def check_dagster_settings(home: Home) -> Iterator[Finding]:
    """One finding for each setting that is not as it must be."""
    check, file = "dagster.yaml", home.dagster_home / "dagster.yaml"
    if not file.exists():
        yield warning(check, f"{file} is not there yet", "`nvtrader-rl up` writes the packaged one")
        return
    from dagster._core.instance.config import dagster_instance_config

    try:
        config, _ = dagster_instance_config(str(home.dagster_home))
    except Exception as problem:
        yield error(check, f"Dagster refuses {file}: {problem}", "correct it, or delete it: `nvtrader-rl up` writes it")
        return
    bad = [setting for setting in _SETTINGS if not setting.good(_value(config, setting.key))]
    for setting in bad:
        value = _value(config, setting.key)
        said = "is not set" if value is None else f"is {str(value).lower()}"
        remedy = f"write {setting.key}: {setting.wanted} into {file} and restart"
        yield Finding(check, setting.status, f"{setting.key} {said}: {setting.why}", remedy)
    if not bad:
        yield ok(check, f"the {len(_SETTINGS)} settings of {file} that matter are right")


def _value(config: Any, key: str) -> Any:
    for name in key.split("."):
        if not isinstance(config, dict) or name not in config:
            return None
        config = config[name]
    return config
