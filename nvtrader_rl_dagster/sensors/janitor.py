"""`gpu_janitor`: puts right what was left behind when somebody was killed."""

from collections.abc import Callable

import dagster as dg

from nvtrader_rl_dagster.nemo_rl.reconcile import reconcile
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.sensors.lost_runs import end_lost_runs, pass_on_cancels
from nvtrader_rl_dagster.sensors.pool_slots import free_stale_slots


@dg.sensor(
    minimum_interval_seconds=10,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Ends trainings without a supervisor and runs without a worker, and frees pool slots that they hold.",
)
def gpu_janitor(context: dg.SensorEvaluationContext, artifacts: ArtifactStore) -> dg.SkipReason:
    """Every tick does all of it; a second tick finds nothing to do."""
    instance = context.instance
    parts: dict[str, Callable[[], list[str]]] = {
        "trainings": lambda: reconcile(artifacts.runs, artifacts.home.lease),
        "cancels": lambda: pass_on_cancels(instance),
        "Dagster runs": lambda: end_lost_runs(instance),
        "pool slots": lambda: free_stale_slots(instance),
    }
    done: list[str] = []
    failed: list[str] = []
    for name, part in parts.items():
        try:
            done += part()
        except Exception as error:
            # The other parts still free the GPU; the tick fails in the end, so that somebody sees it.
            context.log.exception("gpu_janitor: %s", name)
            failed.append(f"{name}: {error!r}")
    if failed:
        raise RuntimeError("; ".join([*failed, *done]))
    return dg.SkipReason("; ".join(done) if done else "nothing left behind")
