"""Loggers that would end the run, and monitors that have nothing to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, refuse, warn

_NO_KEY_NEEDED = ("offline", "disabled", "dryrun")


def check_loggers(case: Case, unified_memory: bool) -> Iterator[Finding]:
    """unified_memory: the GPU shares the CPU's, so NVML reports none, as on a GB10."""
    if case.embedded or not case.trains:
        return
    settings, environment = case.settings, case.environment
    home = Path(environment.get("HOME") or Path.home())
    if settings.get("logger.wandb_enabled"):
        mode = environment.get("WANDB_MODE") or settings.get("logger.wandb.mode")
        if "WANDB_API_KEY" not in environment and mode not in _NO_KEY_NEEDED and not (home / ".netrc").exists():
            message = "logger.wandb_enabled is true, and there is neither WANDB_API_KEY nor WANDB_MODE=offline"
            yield refuse("wandb_key", message, "set logger.wandb_enabled: false, or pass WANDB_API_KEY on")
    if settings.get("logger.swanlab_enabled"):
        mode = environment.get("SWANLAB_MODE") or settings.get("logger.swanlab.mode")
        logged_in = "SWANLAB_API_KEY" in environment or (home / ".swanlab" / ".netrc").exists()
        if not logged_in and mode not in (*_NO_KEY_NEEDED, "local"):
            message = "logger.swanlab_enabled is true, and there is no SWANLAB_API_KEY"
            yield warn("swanlab_key", message, "set logger.swanlab_enabled: false, or pass SWANLAB_API_KEY on")
    if settings.get("logger.monitor_gpus") and unified_memory:
        message = "logger.monitor_gpus is true, and this GPU reports no memory of its own (NVML: not supported)"
        yield warn("monitor_gpus", message, "set logger.monitor_gpus: false")
