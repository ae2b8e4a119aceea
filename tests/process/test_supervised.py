"""A supervised trainer as it really behaves: it is read whole, stopped whole, and never outlives its owner."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.cancel import request_cancel
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits, ProcessRecord, Reason, StallPolicy
from nvtrader_rl_dagster.nemo_rl.lease import lease_holder
from nvtrader_rl_dagster.nemo_rl.metrics import read_metrics
from nvtrader_rl_dagster.nemo_rl.reconcile import reconcile
from nvtrader_rl_dagster.nemo_rl.runs import RunState
from nvtrader_rl_dagster.nemo_rl.supervised import SupervisedProcess
from tests.process.launching import STEP, STUBBORN, Workplace, gone, log, pids, said, supervisor, wait_for

SLEEP = "import time; print('up', flush=True); time.sleep(300)"


def test_the_log_is_complete_in_order_and_raw(place: Workplace) -> None:
    process = place.start(
        r"""
        import sys
        print("one"); sys.stderr.write("two\n")
        sys.stdout.buffer.write(b"bar 10%\rbar 100%\n\x1b[34mblue\x1b[0m \xff\nlast without newline")
        """
    )
    ended = process.wait()
    assert (ended.reason, ended.exit_code, ended.lines, ended.lost_lines) == (Reason.EXITED, 0, 5, 0)
    rows = log(process.directory)
    assert [row["n"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[2]["text"] == "bar 10%\rbar 100%" and rows[3]["text"] == "\x1b[34mblue\x1b[0m \ufffd"
    assert rows[4]["text"] == "last without newline"
    assert ended.tail[2:4] == ["bar 100%", "blue \ufffd"]


def test_a_second_launch_continues_the_log_behind_a_line_torn_by_a_kill(place: Workplace) -> None:
    first = place.start("print('one')")
    first.wait()
    with first.directory.log.open("ab") as file:
        file.write(b'{"n": 2, "ts": "2026')
    place.start("print('two')", first.directory).wait()
    assert [(row["n"], row["text"]) for row in log(first.directory)] == [(1, "one"), (2, "two")]


def test_metrics_arrive_while_it_runs_and_are_on_disk(place: Workplace) -> None:
    process = place.start(
        """
        import time
        for step in (1, 2):
            print("=" * 25 + f" Step {step}/2 " + "=" * 25)
            print("📊 Training Results:\\n  • loss: 0.5\\n\\n⏱️  Timing:\\n  • Total step time: 0.10s", flush=True)
            time.sleep(3 if step == 1 else 0)
        """
    )
    batches = process.metrics(poll_seconds=0.1)
    first = next(batch for batch in batches if batch)
    assert (first[0].step, first[0].name, first[0].value) == (1, "loss", 0.5)
    assert lease_holder(place.lease) is not None, "the first metric must not wait for the end"
    assert process.directory.record().state is RunState.RUNNING
    assert {m.step for m in [*first, *(metric for batch in batches for metric in batch)]} == {1, 2}
    assert [m.step for m in read_metrics(process.directory.metrics) if m.name == "loss"] == [1, 2]


def test_a_cancelled_trainer_takes_worker_and_hidden_daemon_with_it(place: Workplace) -> None:
    """Case O37: a grandchild in a new session that ignores SIGTERM."""
    process = place.start(STUBBORN + "time.sleep(300)", grace=0.5)
    everybody = pids(process.directory)
    assert len(everybody) == 4 and not gone(*everybody)
    request_cancel(process.directory, "anna")
    states = set()
    while not gone(*everybody):
        states.add(process.directory.record().state)
    assert states <= {RunState.RUNNING}, "cancelled is only said when nothing is left"
    ended = process.wait()
    assert (ended.reason, ended.left, ended.detail) == (Reason.CANCELLED, [], "cancelled by anna")
    assert process.directory.record().state is RunState.CANCELLED
    before = process.directory.record()
    request_cancel(process.directory, "ben")
    process.stop()
    assert process.directory.record() == before
    assert lease_holder(place.lease) is None and place.nothing_left()


def test_a_polite_trainer_finishes_its_checkpoint_within_the_grace(place: Workplace) -> None:
    process = place.start(
        """
        import pathlib, time
        print("up", flush=True)
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            time.sleep(0.5)
            print("saved", flush=True)
        """,
        grace=15,
    )
    wait_for(lambda: said(process.directory, "up"))
    assert process.stop().exit_code == 0
    assert said(process.directory, "saved"), "what it says while it ends is in the log as well"


def test_workers_that_outlive_a_trainer_are_ended_and_do_not_change_its_exit_code(place: Workplace) -> None:
    process = place.start(STUBBORN + "os._exit(3)")
    everybody = pids(process.directory)
    ended = process.wait()
    assert (ended.reason, ended.exit_code, ended.left) == (Reason.EXITED, 3, [])
    assert gone(*everybody)


OWNER = """
import os, sys, time
from pathlib import Path
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory
from tests.process.launching import Workplace
place = Workplace(Path(sys.argv[1]))
process = place.start(Path(sys.argv[2]).read_text(), RunDirectory(Path(sys.argv[3])), grace=0.5)
if sys.argv[4:]:
    os.fork()  # a copy that keeps the lifeline open
time.sleep(300)
"""


@pytest.mark.parametrize("forked", [[], ["forked"]], ids=["plain", "lifeline-copied-by-a-fork"])
def test_a_killed_owner_takes_everything_with_it(place: Workplace, forked: list[str]) -> None:
    directory = place.new_run()
    script = place.root / "code.py"
    script.write_text(STUBBORN + "time.sleep(300)")
    arguments = [sys.executable, "-c", OWNER, str(place.root), str(script), str(directory.path), *forked]
    owner = subprocess.Popen(arguments, cwd=Path(__file__).parents[2], start_new_session=True)
    try:
        everybody = pids(directory)
        owner.kill()
        owner.wait()
        wait_for(lambda: gone(*everybody) and place.nothing_left())
        wait_for(lambda: directory.record().ended_for_good)
    finally:
        os.killpg(owner.pid, signal.SIGKILL) if forked else None
    record = directory.record()
    assert record.state is RunState.FAILED and record.failure is not None and record.failure["code"] == "owner_gone"
    assert lease_holder(place.lease) is None


def test_a_killed_supervisor_frees_the_lease_and_its_owner_ends_what_it_left(place: Workplace) -> None:
    process = place.start(STUBBORN + "time.sleep(300)")
    everybody = pids(process.directory)
    wait_for((process.directory.path / "members.json").exists)
    time.sleep(2.5)  # the daemon hides its environment: only the list of members knows it
    os.kill(supervisor(process.directory), signal.SIGKILL)
    ended = process.wait()
    assert ended.reason is Reason.SUPERVISOR_DIED
    assert gone(*everybody) and lease_holder(place.lease) is None


def test_when_owner_and_supervisor_are_killed_the_next_launch_cleans_up_first(place: Workplace) -> None:
    directory = place.new_run()
    process = place.start(STUBBORN + "time.sleep(300)", directory, detached=True)
    everybody = pids(directory)
    os.kill(supervisor(directory), signal.SIGKILL)
    process._supervisor.wait()
    assert not gone(*everybody)
    place.start("print('next')").wait()
    assert gone(*everybody[:2])


def test_reconciling_ends_leftovers_and_concludes_the_run(place: Workplace) -> None:
    directory = place.new_run()
    directory.update(creator=None)
    process = place.start(STUBBORN + "time.sleep(300)", directory, detached=True)
    everybody = pids(directory)
    assert reconcile(place.runs, place.lease) == [], "a live run is left alone"
    ray = Path((ProcessRecord.read(directory.path) or pytest.fail()).ray_tmp)
    os.kill(supervisor(directory), signal.SIGKILL)
    process._supervisor.wait()
    done = reconcile(place.runs, place.lease)
    assert gone(*everybody[:2]) and not ray.exists()
    assert any("is failed now (supervisor_died)" in sentence for sentence in done)
    assert directory.record().state is RunState.FAILED
    assert reconcile(place.runs, place.lease) == []


def test_of_two_launches_at_once_one_runs_and_one_is_queued_until_the_holder_is_killed(place: Workplace) -> None:
    """Case O39."""
    first, second = (place.start(SLEEP, lease_wait=60) for _ in range(2))
    wait_for(lambda: said(first.directory, "up") or said(second.directory, "up"))
    time.sleep(1)
    runs = sorted((first, second), key=lambda process: said(process.directory, "up"))
    assert [process.directory.record().state for process in runs] == [RunState.QUEUED, RunState.RUNNING]
    waiting, running = runs
    os.kill(supervisor(running.directory), signal.SIGKILL)
    wait_for(lambda: said(waiting.directory, "up"))
    waiting.stop()
    running.wait()


def test_a_launch_that_may_not_wait_says_who_holds_the_gpu(place: Workplace) -> None:
    first = place.start(SLEEP)
    wait_for(lambda: said(first.directory, "up"))
    second = place.start(SLEEP)
    ended = second.wait()
    assert ended.reason is Reason.LEASE_HELD and first.directory.run_id in ended.detail
    failure = second.directory.record().failure
    assert failure is not None and failure["code"] == "lease_held" and "runs cancel" in failure["advice"]
    first.stop()


def test_a_queued_launch_can_be_cancelled(place: Workplace) -> None:
    first = place.start(SLEEP)
    wait_for(lambda: said(first.directory, "up"))
    second = place.start(SLEEP, lease_wait=60)
    time.sleep(1)
    request_cancel(second.directory, "anna")
    assert second.wait().reason is Reason.CANCELLED
    assert second.directory.record().state is RunState.CANCELLED and not second.directory.log.exists()
    first.stop()


def test_a_training_that_stops_making_steps_is_stalled_and_ended(place: Workplace) -> None:
    """Case O38."""
    process = place.start(STEP + "print('waiting for NCCL')\nimport time; time.sleep(300)", stall=1.5)
    ended = process.wait()
    assert ended.reason is Reason.STALLED
    record = process.directory.record()
    assert record.state is RunState.STALLED and record.failure is not None
    assert "after step 1" in record.failure["line"] and "waiting for NCCL" in record.failure["line"]


def test_a_stalled_training_may_be_warned_about_only_and_recover(place: Workplace) -> None:
    code = STEP + "import time; time.sleep(3)\n" + STEP + "time.sleep(1.5)"
    process = place.start(code, stall=1.2, stall_policy=StallPolicy.WARN)
    wait_for(lambda: process.directory.record().state is RunState.STALLED)
    failure = process.directory.record().failure
    assert failure is not None and "no new step for 1.2 s after step 1" in failure["line"]
    wait_for(lambda: process.directory.record().state is RunState.RUNNING)
    assert process.directory.record().failure is None
    assert process.wait().reason is Reason.EXITED


def test_output_before_the_first_step_is_a_sign_of_life(place: Workplace) -> None:
    code = "import time\nfor n in range(20): print('building', n, flush=True); time.sleep(0.2)"
    assert place.start(code, stall=1.5).wait().reason is Reason.EXITED


def test_the_run_limit_ends_a_training(place: Workplace) -> None:
    process = place.start(SLEEP, run=1.5)
    assert process.wait().reason is Reason.TIME_LIMIT
    failure = process.directory.record().failure
    assert failure is not None and failure["code"] == "time_limit" and "1.5 s" in failure["line"]


def test_ray_gets_a_short_private_folder_that_is_removed(place: Workplace) -> None:
    process = place.start(
        "import os, stat; f = os.environ['RAY_TMPDIR']; print(f, stat.S_IMODE(os.stat(f).st_mode)); open(f + '/x', 'w')"
    )
    process.wait()
    folder, mode = log(process.directory)[0]["text"].split()
    assert len(folder) < 45 and int(mode) == stat.S_IRWXU
    assert not Path(folder).exists()


def test_an_interpreter_that_is_not_there_is_said(place: Workplace) -> None:
    directory = place.new_run()
    ended = SupervisedProcess(directory, ["/nowhere/python"], os.environ, place.lease, Limits()).wait()
    assert ended.reason is Reason.NOT_STARTED and "/nowhere/python" in ended.detail
    assert directory.record().state is RunState.FAILED
    assert lease_holder(place.lease) is None


def test_a_detached_launch_outlives_its_starter_and_concludes_itself(place: Workplace) -> None:
    process = place.start("import time; time.sleep(1)", detached=True)
    wait_for(lambda: process.directory.record().ended_for_good)
    failure = process.directory.record().failure
    assert failure is not None and failure["code"] == "zero_steps"


def test_nemo_rl_is_not_started_beside_a_ray_cluster_that_is_not_ours(place: Workplace) -> None:
    """It would join the cluster, and no signal of ours reaches workers there."""
    head = place.root / "gcs_server"
    shutil.copy(Path("/bin/sleep").resolve(), head)
    foreign = subprocess.Popen([head, "300"])
    try:
        directory = place.new_run()
        command = [sys.executable, "-c", "print('trained')"]
        process = SupervisedProcess(directory, command, os.environ, place.lease, Limits(), uses_ray=True)
        ended = process.wait()
    finally:
        foreign.kill()
        foreign.wait()
    assert ended.reason is Reason.FOREIGN_RAY and f"gcs_server (pid {foreign.pid})" in ended.detail
    assert not directory.log.exists() and lease_holder(place.lease) is None
