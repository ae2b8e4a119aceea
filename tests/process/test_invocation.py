"""A trainer process as it really behaves: it is read whole, and stopped whole."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import orjson
import psutil
import pytest

from nvtrader_rl_dagster.nemo_rl.invocation import TrainerProcess, read_metrics
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory


def start(tmp_path: Path, code: str, grace: float = 1.0) -> TrainerProcess:
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(code))
    return TrainerProcess([sys.executable, "-u", str(script)], RunDirectory(tmp_path), os.environ, grace_seconds=grace)


def log(tmp_path: Path) -> list[dict]:
    return [orjson.loads(line) for line in (tmp_path / "log.jsonl").read_bytes().splitlines()]


def wait_for(condition, seconds: float = 15.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_log_is_complete_in_order_and_raw(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        r"""
        import sys
        print("one"); sys.stderr.write("two\n")
        sys.stdout.buffer.write(b"bar 10%\rbar 100%\n\x1b[34mblue\x1b[0m \xff\nlast without newline")
        """,
    )
    list(process.metrics())
    assert process.wait() == 0
    rows = log(tmp_path)
    assert [row["n"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[2]["text"] == "bar 10%\rbar 100%" and rows[3]["text"] == "\x1b[34mblue\x1b[0m \ufffd"
    assert rows[4]["text"] == "last without newline"
    assert process.tail[-1] == "last without newline"


def test_metrics_arrive_while_it_runs_and_are_on_disk(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        """
        import time
        for step in (1, 2):
            print("=" * 25 + f" Step {step}/2 " + "=" * 25)
            print("📊 Training Results:\\n  • loss: 0.5\\n\\n⏱️  Timing:\\n  • Total step time: 0.10s", flush=True)
            time.sleep(3 if step == 1 else 0)
        """,
    )
    batches = process.metrics(poll_seconds=0.1)
    first = next(batch for batch in batches if batch)
    assert (first[0].step, first[0].name, first[0].value) == (1, "loss", 0.5)
    assert process._process.poll() is None, "the first metric must not wait for the end"
    rest = [metric for batch in batches for metric in batch]
    assert {m.step for m in rest} == {1, 2}
    assert [m.step for m in read_metrics(tmp_path / "metrics.jsonl") if m.name == "loss"] == [1, 2]


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen([sys.executable, "-c",
    "import signal,time; signal.signal(2, 1); signal.signal(15, 1); time.sleep(120)"])
print(worker.pid, flush=True)
time.sleep(120)
"""


def test_stop_ends_a_stubborn_trainer_and_its_worker(tmp_path: Path) -> None:
    process = start(tmp_path, STUBBORN, grace=0.3)
    wait_for(lambda: process.tail)
    worker = int(process.tail[0])
    process.stop()
    assert process.wait() == -signal.SIGKILL
    wait_for(lambda: gone(worker))
    process.stop()  # a second stop is harmless


def test_stop_lets_a_polite_trainer_finish_its_checkpoint(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        """
        import pathlib, time
        print("up", flush=True)
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            time.sleep(0.5)
            pathlib.Path(__file__).with_name("saved").write_text("x")
        """,
        grace=10,
    )
    wait_for(lambda: process.tail)
    process.stop()
    assert (tmp_path / "saved").exists() and process.wait() == 0


def test_a_worker_that_outlives_its_leader_is_stopped_too(tmp_path: Path) -> None:
    process = start(tmp_path, STUBBORN.replace("time.sleep(120)\n", "os._exit(3)\n"), grace=0.3)
    wait_for(lambda: process.tail)
    worker = int(process.tail[0])
    assert process.wait() == 3
    process.stop()
    wait_for(lambda: gone(worker))


def test_a_log_that_cannot_be_written_stops_the_trainer(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").mkdir()
    process = start(tmp_path, "import time; time.sleep(60)", grace=0.3)
    with pytest.raises(IsADirectoryError):
        list(process.metrics())
    assert gone(process.pid)
