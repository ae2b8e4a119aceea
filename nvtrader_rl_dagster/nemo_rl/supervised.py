"""The owner's side of a launch: start a supervisor, follow its files, end it, learn how it ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.launch_files import Exit, Launch, Limits, Reason
from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.metrics import MetricsFollower
from nvtrader_rl_dagster.nemo_rl.processes import (
    LAUNCH_VARIABLE,
    LEASE_VARIABLE,
    SUPERVISOR_MODULE,
    ProcessIdentity,
)
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory
from nvtrader_rl_dagster.nemo_rl.sweep import sweep

_POLL_SECONDS = 0.2
#: On top of the grace: SIGTERM, SIGKILL, the proof, and the manifests of large checkpoints.
_STOP_SECONDS = 60.0


class SupervisedProcess:
    """One command under a supervisor, with its files in `directory`. env: its whole environment, besides what the
    supervisor adds.

    However this process ends, the command ends as well, unless it is `detached`. The raw output goes to our standard
    output, which a Dagster step captures as its compute log.
    """

    def __init__(
        self,
        directory: RunDirectory,
        command: Sequence[str],
        env: Mapping[str, str],
        lease: Path,
        limits: Limits,
        cwd: Path | None = None,
        attempt: int = 1,
        detached: bool = False,
        uses_ray: bool = False,
    ) -> None:
        self.directory = directory
        self._lease = lease
        self._limits = limits
        self._launch_id = secrets.token_hex(8)
        offset = directory.metrics.stat().st_size if directory.metrics.exists() else 0
        self._metrics = MetricsFollower(directory.metrics, offset)
        launch = Launch(
            launch_id=self._launch_id,
            command=list(command),
            cwd=str(cwd) if cwd else None,
            lease=str(lease),
            limits=limits,
            owner=None if detached else ProcessIdentity.of(os.getpid()),
            attempt=attempt,
            uses_ray=uses_ray,
            pythonpath=env.get("PYTHONPATH"),
        )
        # The supervisor is our own Python, and finds us as this one did.
        own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        trainers = {name: value for name, value in env.items() if name != "PYTHONPATH"}
        sys.stdout.flush()
        self._supervisor = subprocess.Popen(
            [sys.executable, "-m", SUPERVISOR_MODULE, str(launch.write(directory.path))],
            stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
            env={**trainers, **own, LAUNCH_VARIABLE: self._launch_id, LEASE_VARIABLE: str(lease)},
            start_new_session=True,
        )

    def metrics(self, poll_seconds: float = 1.0) -> Iterator[list[Metric]]:
        """Metrics as they arrive, an empty list at each poll without any; ends with the launch."""
        polled = time.monotonic()
        while not self._ended_within(_POLL_SECONDS):
            if time.monotonic() - polled >= poll_seconds:
                polled = time.monotonic()
                yield self._metrics.read()
        yield self._metrics.read()

    def wait(self) -> Exit:
        """How it ended. When the supervisor was killed, what it left running is ended first."""
        self._supervisor.wait()
        self._close_lifeline()
        ended = Exit.read(self.directory.path, self._launch_id)
        if ended is None:
            sweep(self._lease)
            ended = Exit(self._launch_id, Reason.SUPERVISOR_DIED, detail="its supervisor was killed")
        return ended

    def stop(self) -> Exit:
        """Cancel it and wait until nothing of it is left. Harmless when it has ended."""
        if self._supervisor.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._supervisor.stdin.write(b"cancel\n")
                self._supervisor.stdin.flush()
        self._close_lifeline()
        try:
            self._supervisor.wait(self._limits.grace + _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
        return self.wait()

    def _ended_within(self, seconds: float) -> bool:
        try:
            self._supervisor.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _close_lifeline(self) -> None:
        if self._supervisor.stdin is not None:
            with contextlib.suppress(OSError):
                self._supervisor.stdin.close()
