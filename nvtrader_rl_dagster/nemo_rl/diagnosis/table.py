"""The table of known failures. The first entry that fits an exception names it, so the special ones stand first."""

from __future__ import annotations

from nvtrader_rl_dagster.nemo_rl.diagnosis.data import DATA
from nvtrader_rl_dagster.nemo_rl.diagnosis.failure import KnownFailure
from nvtrader_rl_dagster.nemo_rl.diagnosis.install import INSTALL
from nvtrader_rl_dagster.nemo_rl.diagnosis.resources import RESOURCES
from nvtrader_rl_dagster.nemo_rl.diagnosis.training import TRAINING

TABLE: tuple[KnownFailure, ...] = (*INSTALL, *DATA, *RESOURCES, *TRAINING)
BY_CODE: dict[str, KnownFailure] = {failure.code: failure for failure in TABLE}
