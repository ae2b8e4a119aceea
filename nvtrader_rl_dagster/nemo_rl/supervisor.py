"""The supervisor: holds the GPU, runs one trainer, outlives its owner just long enough to leave nothing behind.

`python -m nvtrader_rl_dagster.nemo_rl.supervisor <run folder>/launch.json`, in a session of its own, with the lifeline
as standard input: its end, or the word `cancel` on it, stops the trainer. Standard output gets the raw output.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from nvtrader_rl_dagster.nemo_rl import ray_folder
from nvtrader_rl_dagster.nemo_rl.cancel import cancel_request
from nvtrader_rl_dagster.nemo_rl.launch_files import (
    RESERVE_FILE,
    Exit,
    Launch,
    ProcessRecord,
    Reason,
    StallPolicy,
    write_members,
)
from nvtrader_rl_dagster.nemo_rl.lease import GpuLease, lease_holder
from nvtrader_rl_dagster.nemo_rl.lifeline import Lifeline
from nvtrader_rl_dagster.nemo_rl.log_writer import LogWriter
from nvtrader_rl_dagster.nemo_rl.process_tree import ProcessTree
from nvtrader_rl_dagster.nemo_rl.processes import ProcessIdentity, boot_id
from nvtrader_rl_dagster.nemo_rl.ray_heads import foreign_ray
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, timestamp

_POLL_SECONDS = 0.2
_MEMBERS_SECONDS = 2.0
_LINE_BYTES = 1 << 20
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_OOM_SCORE = "500"


class Supervisor:
    """One launch from the lease to the proof that nothing is left."""

    def __init__(self, folder: Path, launch: Launch) -> None:
        self._launch = launch
        self._limits = launch.limits
        self._directory = RunDirectory(folder)
        self._lease = GpuLease(Path(launch.lease))
        self._tree = ProcessTree(launch.launch_id, os.getpid(), self._reap)
        self._trainer: subprocess.Popen[bytes] | None = None
        self._log: LogWriter | None = None
        self._reader: threading.Thread | None = None
        self._lifeline = Lifeline(folder, launch)
        self._members: list[ProcessIdentity] = []
        self._members_due = 0.0
        self._started = time.monotonic()
        self._stalled = False

    def run(self) -> None:
        """Returns when the launch has ended and `exit.json` says how."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        holder = {
            "launch_id": self._launch.launch_id,
            "directory": str(self._directory.path),
            "run_id": self._directory.run_id,
            "pid": os.getpid(),
            "boot": boot_id(),
        }
        self._write_record()
        ended: list[Reason] = []

        def asked_to_stop() -> bool:
            ended[:] = [reason] if (reason := self._lifeline.asked_to_stop(seconds=0)) else []
            return bool(ended)

        if asked_to_stop():
            self._finish(ended[0], [])
        elif not self._lease.acquire(holder, self._limits.lease_wait, asked_to_stop):
            self._finish(ended[0] if ended else Reason.LEASE_HELD, [], self._held_by())
        else:
            self._supervise()

    def abandon(self) -> None:
        """An error of ours must not leave a trainer without a supervisor."""
        self._tree.clear()

    def _supervise(self) -> None:
        from nvtrader_rl_dagster.nemo_rl.sweep import sweep

        # Whoever was here before us is gone, or it would hold the lease; its processes may not be.
        for sentence in sweep(Path(self._launch.lease), self._lease.previous):
            print(sentence, flush=True)
        if self._launch.uses_ray and (found := foreign_ray(Path(self._launch.lease))):
            daemons = ", ".join(f"{name} (pid {pid})" for pid, name in found.items())
            self._finish(Reason.FOREIGN_RAY, [], f"a Ray cluster that is not ours is running: {daemons}")
            return
        try:
            self._log = LogWriter(self._directory)
            self._trainer = self._start()
        except OSError as error:
            self._finish(Reason.NOT_STARTED, self._tree.clear(), f"{type(error).__name__}: {error}")
            return
        self._write_record()
        self._set_state(state=RunState.RUNNING, started=timestamp())
        self._reader = threading.Thread(target=self._read, name="trainer-output", daemon=True)
        self._reader.start()
        reason = self._watch()
        detail = ""
        if reason is Reason.EXITED:
            left = self._tree.clear()
        else:
            detail = self._detail(reason)
            print(f"stopping the trainer: {detail}", flush=True)
            left = self._tree.stop(self._trainer.pid, self._limits.grace)
        if self._trainer.pid not in left:
            self._trainer.wait()
        self._reader.join(timeout=10)
        self._log.close()
        self._finish(reason, left, detail)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "RAY_TMPDIR": str(ray_folder.create(self._launch.launch_id, self._launch.lease))}
        # An address of somebody else's cluster would take the training out of our hands.
        environment.pop("RAY_ADDRESS", None)
        environment.pop("PYTHONPATH", None)
        if self._launch.pythonpath is not None:
            environment["PYTHONPATH"] = self._launch.pythonpath
        return subprocess.Popen(
            self._launch.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=self._launch.cwd,
            preexec_fn=_in_own_group,  # noqa: PLW1509 (the reader thread starts later)
        )

    def _watch(self) -> Reason:
        """Wait for the trainer's end, or for a reason to end it."""
        assert self._trainer is not None
        while True:
            if self._trainer.poll() is not None:
                return Reason.EXITED
            self._reap()
            self._note_members()
            if reason := self._lifeline.asked_to_stop(_POLL_SECONDS) or self._over_limit():
                return reason

    def _note_members(self) -> None:
        """Write down who belongs to us, for whoever has to clean up after our own death."""
        now = time.monotonic()
        if now < self._members_due:
            return
        self._members_due = now + _MEMBERS_SECONDS
        members = [identity for pid in self._tree.members() if (identity := ProcessIdentity.of(pid))]
        if members != self._members:
            self._members = members
            with contextlib.suppress(OSError):
                write_members(self._directory.path, self._launch.launch_id, members)

    def _over_limit(self) -> Reason | None:
        assert self._log is not None
        now = time.monotonic()
        if self._limits.run is not None and now - self._started > self._limits.run:
            return Reason.TIME_LIMIT
        stalled = self._limits.stall is not None and now - self._log.progressed > self._limits.stall
        if stalled and self._limits.stall_policy is StallPolicy.KILL:
            return Reason.STALLED
        if stalled != self._stalled:
            self._stalled = stalled
            self._set_state(
                state=RunState.STALLED if stalled else RunState.RUNNING,
                failure=self._stall_warning() if stalled else None,
            )
        return None

    def _stall_warning(self) -> dict[str, Any]:
        return {
            "code": "stalled",
            "line": self._detail(Reason.STALLED),
            "advice": "It goes on; cancel it if it does not recover.",
        }

    def _detail(self, reason: Reason) -> str:
        if reason is Reason.CANCELLED:
            return f"cancelled by {(cancel_request(self._directory.path) or {}).get('by', 'its owner')}"
        if reason is Reason.TIME_LIMIT:
            return f"the run limit of {self._limits.run:g} s is over"
        if reason is Reason.STALLED:
            last = " | ".join(line for line in list(self._log.tail)[-3:] if line.strip()) if self._log else ""
            return f"no new step for {self._limits.stall:g} s after step {self._log and self._log.parser.step}: {last}"
        return "its owner is gone" if reason is Reason.OWNER_GONE else "the supervisor was told to end"

    def _read(self) -> None:
        assert self._trainer is not None and self._trainer.stdout is not None and self._log is not None
        echo: IO[bytes] | None = sys.stdout.buffer
        while line := self._trainer.stdout.readline(_LINE_BYTES):
            self._log.line(line)
            try:
                if echo:
                    echo.write(line)
                    echo.flush()
            except OSError:  # whoever read it is gone
                echo = None

    def _reap(self) -> None:
        """Collect orphans that became our children, so that no zombie stays; the trainer is for `Popen`."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            if self._trainer is not None and found.si_pid == self._trainer.pid:
                self._trainer.poll()
            else:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(found.si_pid, os.WNOHANG)

    def _finish(self, reason: Reason, left: list[int], detail: str = "") -> None:
        from nvtrader_rl_dagster.nemo_rl.conclusion import conclude

        log = self._log
        # The trainer may have filled the disk; this makes room to say so.
        (self._directory.path / RESERVE_FILE).unlink(missing_ok=True)
        shutil.rmtree(ray_folder.path(self._launch.launch_id), ignore_errors=True)
        Exit(
            launch_id=self._launch.launch_id,
            reason=reason,
            exit_code=self._trainer.returncode if self._trainer else None,
            detail=detail,
            seconds=round(time.monotonic() - self._started, 3),
            left=left,
            lines=log.lines if log else 0,
            first_line=log.first_line if log else 1,
            lost_lines=log.lost_lines if log else 0,
            tail=list(log.tail) if log else [],
        ).write(self._directory.path)
        self._lease.release()
        if self._is_run():
            conclude(self._directory)

    def _held_by(self) -> str:
        holder = lease_holder(Path(self._launch.lease)) or {}
        return f"the GPU is held by {holder.get('run_id', 'another process')} (pid {holder.get('pid', 'unknown')})"

    def _write_record(self) -> None:
        me = ProcessIdentity.of(os.getpid())
        assert me is not None
        ProcessRecord(
            launch_id=self._launch.launch_id,
            attempt=self._launch.attempt,
            supervisor=me,
            owner=self._launch.owner,
            trainer=ProcessIdentity.of(self._trainer.pid) if self._trainer else None,
            sid=os.getsid(0),
            ray_tmp=str(ray_folder.path(self._launch.launch_id)),
            lease=self._launch.lease,
        ).write(self._directory.path)

    def _set_state(self, **changes: Any) -> None:
        if self._is_run():
            with contextlib.suppress(OSError):  # a full disk: the end of the run will say so
                self._directory.update(**changes)

    def _is_run(self) -> bool:
        """A scoring is supervised as well, but has no record."""
        return (self._directory.path / "run.json").exists()


def _in_own_group() -> None:
    """Runs in the child: a process group of its own, signals as in a terminal, first to go when memory ends."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(descriptor, _OOM_SCORE.encode())
        os.close(descriptor)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    supervisor = Supervisor(file.parent, Launch.read(file))
    try:
        supervisor.run()
    except BaseException:
        supervisor.abandon()
        raise
