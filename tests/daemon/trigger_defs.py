"""The code location of these tests: the product's graph and jobs, with only the sensors that are under test."""

from collections.abc import Iterator

import dagster as dg

from nvtrader_rl_dagster import definitions
from nvtrader_rl_dagster.jobs import feedback_to_champion
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource
from nvtrader_rl_dagster.sensors.failures import training_failed
from nvtrader_rl_dagster.sensors.threshold import preference_threshold

#: A file of this name in the state folder makes the sensor of `raising` fail after it has yielded.
RAISE_FILE = "raise"


@dg.sensor(
    name=preference_threshold.name,
    job=feedback_to_champion,
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=preference_threshold.minimum_interval_seconds,
)
def raising_threshold(
    context: dg.SensorEvaluationContext, feedback: FeedbackResource, artifacts: ArtifactStore
) -> Iterator[dg.RunRequest]:
    result = preference_threshold._raw_fn(context, feedback, artifacts)
    context.update_cursor(result.cursor)
    yield from result.run_requests or []
    if (artifacts.home.root / RAISE_FILE).exists():
        raise RuntimeError("after the yield")


def with_sensors(*sensors: dg.SensorDefinition) -> dg.Definitions:
    product = definitions.defs
    return dg.Definitions(
        assets=product.assets,
        asset_checks=product.asset_checks,
        jobs=[feedback_to_champion],
        sensors=sensors,
        resources=product.resources,
        executor=product.executor,
    )


normal = with_sensors(preference_threshold, training_failed)
raising = with_sensors(raising_threshold)
