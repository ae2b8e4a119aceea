"""Training runs: start, list, read and stop them.

The public functions load on first use: the supervisor lives in this package and must start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
    from nvtrader_rl_dagster.nemo_rl.launch import launch_run
    from nvtrader_rl_dagster.nemo_rl.public import cancel_run, get_run, list_runs, tail_log

__all__ = ["ALGOS", "cancel_run", "get_run", "launch_run", "list_runs", "tail_log"]

_MODULES = {
    "ALGOS": "algorithms",
    "cancel_run": "public",
    "get_run": "public",
    "launch_run": "launch",
    "list_runs": "public",
    "tail_log": "public",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
