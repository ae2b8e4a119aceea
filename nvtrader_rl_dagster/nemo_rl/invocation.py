"""One running trainer: its process group, its log, its metrics as they arrive, its end."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import orjson

from nvtrader_rl_dagster.nemo_rl.log_parser import LogParser, Metric
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, timestamp

_TAIL_LINES = 40


class TrainerProcess:
    """Starts `command` in its own process group and reads it to the end.

    A reader thread writes `log.jsonl` and `metrics.jsonl`; the caller's thread only waits on a
    queue with a timeout, so that an interrupt reaches it. `echo` gets each raw line (for compute logs).
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: RunDirectory,
        env: Mapping[str, str],
        cwd: Path | None = None,
        echo: Callable[[str], object] | None = None,
        grace_seconds: float = 20.0,
    ) -> None:
        self.parser = LogParser()
        self.tail: list[str] = []
        self._directory = directory
        self._grace = grace_seconds
        self._echo = echo
        self._metrics: queue.Queue[list[Metric] | None] = queue.Queue()
        self._failure: BaseException | None = None
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="trainer-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def metrics(self, poll_seconds: float = 1.0) -> Iterator[list[Metric]]:
        """Metrics as they arrive, an empty list at each poll without any; ends with the process.

        Raises what went wrong in the reader (a full disk, say); the process is then stopped.
        """
        while True:
            try:
                batch = self._metrics.get(timeout=poll_seconds)
            except queue.Empty:
                yield []
                continue
            if batch is None:
                break
            yield batch
        if self._failure is not None:
            self.stop()
            raise self._failure

    def wait(self) -> int:
        """Exit code of the trainer, once its output has ended; negative for a signal."""
        return self._process.wait()

    def stop(self) -> None:
        """End the whole process group: SIGINT and grace, SIGTERM, SIGKILL. Harmless when it is gone."""
        for number, patience in ((signal.SIGINT, self._grace), (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            try:
                self._process.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                continue
        # The leader is gone; workers that outlived it are still in the group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reader.join(timeout=5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            with self._directory.log.open("ab") as log, self._directory.metrics.open("ab") as metrics:
                for number, raw in enumerate(self._process.stdout, 1):
                    text = raw.decode("utf-8", errors="replace").removesuffix("\n")
                    log.write(orjson.dumps({"n": number, "ts": timestamp(), "text": text}) + b"\n")
                    log.flush()
                    self.tail = [*self.tail[-_TAIL_LINES + 1 :], text]
                    if self._echo:
                        self._echo(text + "\n")
                    self._take(list(self.parser.feed(text)), metrics)
                self._take(list(self.parser.close()), metrics)
        except BaseException as error:  # reported by `metrics`, in the thread that can act on it
            self._failure = error
        finally:
            self._metrics.put(None)

    def _take(self, found: list[Metric], file: BinaryIO) -> None:
        if not found:
            return
        for metric in found:
            row = {
                "step": metric.step,
                "split": metric.split,
                "set": metric.set,
                "name": metric.name,
                "value": metric.value,
            }
            if metric.flag:
                row["flag"] = metric.flag
            file.write(orjson.dumps(row) + b"\n")
        file.flush()
        self._metrics.put(found)


def read_metrics(path: Path) -> list[Metric]:
    """Metrics of a run so far; a half-written last line is left for the next read."""
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        row = orjson.loads(line)
        found.append(Metric(row["step"], row["split"], row["set"], row["name"], row["value"], row.get("flag")))
    return found
