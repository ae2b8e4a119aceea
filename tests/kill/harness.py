"""One kill from launch to proof: reach the moment, strike, then see what becomes of the run and of the next one."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

import dagster as dg
import httpx

from nvtrader_rl_dagster.nemo_rl.runs import RunState
from tests.kill import proofs
from tests.kill.kills import FATE, Fate, Kill, strike
from tests.kill.loop_under_test import FINAL, WINDOW_TAG, LoopUnderTest, Pace, wait_until
from tests.kill.moments import Moment, last_words, reach
from tests.kill.proofs import since
from tests.kill.record import KillRecord
from tests.loop import clear_preferences, import_into

#: After the kill, for the next run to be at work.
NEXT_SECONDS = 30
#: What a sensor may take longer than the launchpad: its interval, and the loop of the daemon.
SENSOR_SECONDS = 20
_RUN_SECONDS = 150
#: Override with which the tiny model learns the rule of `clear_preferences` in twelve steps.
_LEARNS_FAST = "policy.optimizer.kwargs.lr=0.002"
_SERVER_KILLS = (Kill.TREE, Kill.TREE_AND_SUPERVISOR)


@dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    kill: Kill
    moment: Moment
    misbehave: bool
    by_sensor: bool = False

    @property
    def name(self) -> str:
        parts = [self.kill.name, self.moment.name, "misbehaving" if self.misbehave else "polite"]
        return "-".join([*parts, *(["sensor"] if self.by_sensor else [])]).lower()


@dataclass
class Blow:
    """A kill that was done: the run that it met, when, and the launches that lived then."""

    case: Case
    run_id: str
    struck: float
    launches: set[str]
    record: KillRecord


class Harness:
    """Kills run after run of one loop. The run that proves that the next one starts is the next one to be killed."""

    def __init__(self, loop: LoopUnderTest) -> None:
        self.loop = loop
        self._next: str | None = None
        self._feedback_files = self._pairs = 0
        #: First runs of families, and how many trained models each must have made.
        self._models: dict[str, int] = {}

    def prepare(self) -> None:
        """Feedback, a running server, and a champion for the kills to leave alone."""
        loop = self.loop
        feedback = clear_preferences(loop.root / "feedback" / "first.jsonl")
        self._pairs = len(feedback.read_text().splitlines())
        loop.set_pace(Pace(misbehave=False).at_once, _LEARNS_FAST)
        # Before the server: its sensor finds these pairs trained.
        done = loop.server.command("demo", "--data", str(feedback), seconds=300)
        assert done.returncode == 0, done.stdout + done.stderr
        loop.champion()
        loop.server.start()

    def run(self, case: Case, record: KillRecord) -> None:
        """The whole case. Fills `record` as far as it gets; raises `AssertionError` on what does not hold."""
        loop = self.loop
        pace = Pace(case.misbehave)
        loop.set_pace(pace.at_once if case.moment is Moment.SCORE else pace)
        if not loop.server.up():
            loop.server.start()
        run_id = self._take_run(case)
        champion, pairs = loop.champion(), loop.pairs()
        assert len(pairs) == self._pairs, f"{len(pairs)} pairs in the store, {self._pairs} were imported"
        reach(loop, run_id, case.moment)
        before = proofs.Standing.of(loop, run_id)
        blow = Blow(case, run_id, time.monotonic(), loop.census.launches_alive(), record)
        strike(loop, case.kill, case.moment, run_id)
        # What comes now need not be slow any more.
        loop.set_pace(pace.at_once)
        fate = FATE[case.kill]
        {Fate.CANCELLED: self._cancelled, Fate.RESUMED: self._resumed, Fate.GOES_ON: self._goes_on}[fate](blow)
        if fate is Fate.RESUMED and case.moment in (Moment.STARTED, Moment.STEPS, Moment.SAVE):
            proofs.resumed(loop, run_id, before)
        lost = set(pairs) - set(loop.pairs())
        assert not lost, f"pairs were lost: {sorted(lost)}"
        assert loop.champion() == champion, "the champion changed"
        proofs.no_double_training(loop, self._models)

    def recover(self) -> None:
        """After a failed case: nothing in flight and no server, so that it is the only one that fails."""
        loop = self.loop
        self._next = None
        self._models.clear()
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            wait_until(self._nothing_in_flight, 2 * NEXT_SECONDS, "", every=3)
        loop.server.stop()
        for _ in loop.census.kill():
            pass
        for run in loop.runs():
            if not run.is_finished:
                loop.instance.report_run_canceled(run)

    # The three fates

    def _cancelled(self, blow: Blow) -> None:
        loop, moment = self.loop, blow.case.moment
        proofs.nothing_left(loop, blow.struck, None, blow.record)
        self._finish(blow.run_id, dg.DagsterRunStatus.CANCELED, 20)
        blow.record.ended = since(blow.struck)
        trained = moment is Moment.SCORE
        for directory, training in loop.trainings(blow.run_id):
            wanted = RunState.SUCCEEDED if trained else RunState.CANCELLED
            assert training.state is wanted, f"{directory.path}: {training.state} {training.failure}"
        if moment in (Moment.STARTED, Moment.STEPS, Moment.SAVE):
            directory, before = loop.training(blow.run_id)
            again = loop.server.command("runs", "cancel", directory.run_id)
            assert directory.record() == before, again.stdout + again.stderr
        self._models[loop.first_run(blow.run_id)] = int(trained)
        self._start_next(blow, blow.struck)

    def _resumed(self, blow: Blow) -> None:
        """Somebody picks it up without being asked, and finishes what was begun."""
        loop, run_id = self.loop, blow.run_id
        known = {run.run_id for run in loop.family(run_id)}
        # What a dead supervisor left behind is found when the server is there again.
        found_later = blow.case.kill is Kill.TREE_AND_SUPERVISOR
        if not found_later:
            proofs.nothing_left(loop, blow.struck, blow.launches, blow.record)
        base = blow.struck
        if blow.case.kill in _SERVER_KILLS:
            blow.record.server_start = loop.server.start()
            base = time.monotonic()

        def at_work() -> object:
            """A retry runs, or the step itself has launched again."""
            retries = [run.run_id for run in loop.family(run_id) if run.run_id not in known]
            started = any(loop.happened(retry, dg.DagsterEventType.RUN_START) for retry in retries)
            return started or loop.census.launches_alive() - blow.launches

        wait_until(
            at_work,
            NEXT_SECONDS - since(base),
            lambda: f"{run_id} is not picked up: {loop.status(run_id)}\n{last_words(loop, run_id)}",
        )
        blow.record.next_started = since(base)
        if found_later:
            proofs.nothing_left(loop, base, blow.launches, blow.record, NEXT_SECONDS)
        if blow.case.moment is Moment.SCORE:
            wait_until(
                lambda: loop.family(run_id)[-1].status in FINAL and len(loop.family(run_id)) >= len(known),
                _RUN_SECONDS,
                lambda: last_words(loop, loop.family(run_id)[-1].run_id),
            )
            last = loop.family(run_id)[-1]
            assert last.status is dg.DagsterRunStatus.SUCCESS, last_words(loop, last.run_id)
            proofs.nothing_left(loop, time.monotonic(), None)
        else:
            wait_until(lambda: self._is_trained(run_id), _RUN_SECONDS, lambda: f"{loop.trainings(run_id)}")
            # Its scoring can be killed next.
            self._next = loop.family(run_id)[-1].run_id
        blow.record.ended = since(base)
        self._models[loop.first_run(run_id)] = 1

    def _goes_on(self, blow: Blow) -> None:
        """The training does not notice; new runs are taken meanwhile."""
        loop = self.loop
        base = blow.struck
        if blow.case.kill is Kill.DAEMON:
            wait_until(lambda: not loop.server.up(), 60, "the server goes on without its daemon")
            blow.record.server_start = loop.server.start()
            base = time.monotonic()
        if blow.case.by_sensor:
            # A long training builds no backlog: what comes meanwhile waits for its end.
            self._next = self._new_run(blow.case, _RUN_SECONDS)
            assert loop.status(blow.run_id) in FINAL, "two runs in flight"
        else:
            self._start_next(blow, base)
        self._finish(blow.run_id, dg.DagsterRunStatus.SUCCESS)
        blow.record.ended = since(blow.struck)
        _, training = loop.training(blow.run_id)
        assert training.state is RunState.SUCCEEDED, training
        wait_until(
            lambda: not loop.census.of_launches(blow.launches),
            proofs.CLEAN_SECONDS,
            lambda: f"still alive: {loop.census.of_launches(blow.launches)}",
        )
        self._models[loop.first_run(blow.run_id)] = 1

    # Parts

    def _take_run(self, case: Case) -> str:
        """The run that is prepared already, if it can still be killed at this moment, or a new one."""
        run_id, self._next = self._next, None
        if run_id is None:
            return self._new_run(case, NEXT_SECONDS)
        fits = not case.by_sensor and (case.moment is Moment.SCORE or not self._is_trained(run_id))
        if fits and self.loop.status(run_id) not in FINAL:
            return run_id
        self.loop.server.terminate(run_id)
        wait_until(lambda: self.loop.status(run_id) in FINAL, 60, lambda: last_words(self.loop, run_id))
        return self._new_run(case, NEXT_SECONDS)

    def _new_run(self, case: Case, seconds: float) -> str:
        """A new run from the launchpad, or by new feedback and the sensor."""
        loop = self.loop
        if not case.by_sensor:
            return str(wait_until(loop.launch, seconds, "no run can be launched"))
        known = {run.run_id for run in loop.runs()}
        self._feedback_files += 1
        name = f"more-{self._feedback_files}"
        file = clear_preferences(loop.root / "feedback" / f"{name}.jsonl", prompts=8)
        file.write_text(file.read_text().replace("Comment on fund", f"Comment on {name} fund"))
        import_into(loop.home.root, file)
        self._pairs += 8
        (run,) = wait_until(
            lambda: [run for run in loop.runs() if run.run_id not in known],
            seconds + SENSOR_SECONDS,
            "the sensor does not fire",
        )
        assert WINDOW_TAG in run.tags, run.tags
        return str(run.run_id)

    def _start_next(self, blow: Blow, base: float) -> None:
        """The next run is at work in time."""
        loop = self.loop
        run_id = self._next = self._new_run(blow.case, NEXT_SECONDS - since(base))
        wait_until(
            lambda: loop.happened(run_id, dg.DagsterEventType.STEP_START),
            NEXT_SECONDS + SENSOR_SECONDS * blow.case.by_sensor - since(base),
            lambda: f"the next run is {loop.status(run_id)}\n{last_words(loop, run_id)}",
        )
        blow.record.next_started = since(base)

    def _nothing_in_flight(self) -> bool:
        """End what runs, and what Dagster still wants to retry when it comes."""
        runs = self.loop.runs()
        for run in runs:
            if not run.is_finished:
                self.loop.server.terminate(run.run_id)
        return all(run.is_finished and not run.is_complete_and_waiting_to_retry for run in runs)

    def _is_trained(self, run_id: str) -> bool:
        return any(training.state is RunState.SUCCEEDED for _, training in self.loop.trainings(run_id))

    def _finish(self, run_id: str, status: dg.DagsterRunStatus, seconds: float = _RUN_SECONDS) -> None:
        loop = self.loop
        wait_until(lambda: loop.status(run_id) in FINAL, seconds, lambda: f"{run_id}\n{last_words(loop, run_id)}")
        assert loop.status(run_id) is status, f"{run_id} is {loop.status(run_id)}\n{last_words(loop, run_id)}"
