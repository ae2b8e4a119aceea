"""Each check of `nvtrader-rl doctor`, made to fail for real."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.events import EngineEventData
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.types import DaemonHeartbeat
from typer.testing import CliRunner

from nvtrader_rl_dagster.cli import app
from nvtrader_rl_dagster.cli.up import packaged
from nvtrader_rl_dagster.doctor import (
    automation,
    capacity,
    gpu,
    inputs,
    model_size,
    ray_clusters,
    state_folder,
    trainers,
    trainings,
)
from nvtrader_rl_dagster.doctor import instance as instance_checks
from nvtrader_rl_dagster.doctor.dagster_settings import check_dagster_settings
from nvtrader_rl_dagster.doctor.examination import examine
from nvtrader_rl_dagster.doctor.finding import Finding, Status
from nvtrader_rl_dagster.feedback.events import preference
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl import env_probe
from nvtrader_rl_dagster.nemo_rl.lease import GpuLease
from nvtrader_rl_dagster.nemo_rl.processes import LAUNCH_VARIABLE, LEASE_VARIABLE, ProcessIdentity
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, RunStore
from tests.nemo_rl_host import NemoRlHost, nemo_rl_host

DAEMONS = ("SENSOR", "SCHEDULER", "QUEUED_RUN_COORDINATOR", "EVENT_LOG_CONSUMER", "MONITORING")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of our own, and nothing in the environment that a check reads."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for variable in list(os.environ):
        if variable.startswith(("NVTRADER_", "PREFERENCE_")):
            monkeypatch.delenv(variable)


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The state folder of a test; that it lies below /tmp is no finding here."""
    monkeypatch.setattr(state_folder, "_TEMPORARY", ())
    monkeypatch.setenv("NVTRADER_RL_HOME", str(home))
    return Home(home)


@pytest.fixture(scope="module")
def new_dagster_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DAGSTER_HOME with the packaged settings and empty databases, which take seconds to make."""
    folder = tmp_path_factory.mktemp("dagster")
    (folder / "dagster.yaml").write_text(packaged("dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        assert list(instance.get_runs()) == []
        assert instance.all_instigator_state() == []
        assert instance.event_log_storage.get_concurrency_keys() == set()
    return folder


@pytest.fixture
def instance(place: Home, new_dagster_home: Path) -> Iterator[dg.DagsterInstance]:
    shutil.copytree(new_dagster_home, place.dagster_home)
    with dg.DagsterInstance.from_config(str(place.dagster_home)) as instance:
        yield instance


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process that is ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **environment: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command, env={**os.environ, **environment}))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.wait()


def only(findings: Iterator[Finding]) -> Finding:
    (finding,) = findings
    assert bool(finding.remedy) is (finding.status is not Status.OK)
    return finding


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return path


def run_of(home: Home, model: str) -> RunDirectory:
    """A run folder whose config names this base model."""
    run = RunStore(home.runs).create("dpo", "local")
    run.config.write_text(yaml.safe_dump({"policy": {"model_name": model}}))
    return run


def model_folder(folder: Path, parameters: int) -> Path:
    """A model folder whose weight file only has a header."""
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "F32", "shape": [parameters // 2, 2]}}).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


# The command


def test_a_fresh_machine_has_no_error_and_nothing_is_created(place: Home, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    report = json.loads(result.stdout)
    found = {f["check"]: f for f in report["findings"]}
    # What this machine has is not what the test is about.
    errors = {f["check"] for f in report["findings"] if f["status"] == "error"} - {"disk", "memory"}
    assert errors == set()
    for check in ("state folder", "DAGSTER_HOME", "dagster.yaml", "feedback", "Dagster"):
        assert found[check]["status"] == "warning"
        assert found[check]["remedy"]
    assert not place.root.exists()
    assert [p for p in tmp_path.rglob("*") if p.name != "cwd"] == []


def test_errors_come_first_with_their_remedy_and_fail_the_command(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFERENCE_THRESHOLD", "many")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    assert lines[0].startswith("Errors (")
    said = " ".join(result.stdout.split())
    assert "PREFERENCE_THRESHOLD='many' must be a whole number of at least 1" in said
    assert said.index("→ correct the variable") < said.index("Warnings (") < said.index("In order (")
    report = CliRunner().invoke(app, ["doctor", "--json"])
    assert report.exit_code == 1
    assert json.loads(report.stdout)["ok"] is False


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(place: Home, instance: dg.DagsterInstance) -> None:
    run = RunStore(place.runs).create("dpo", "local")
    (run.path / "run.json").write_text("{broken")
    found = examine(place)
    (broken,) = [f for f in found if f.check == "leftovers"]
    assert broken.status is Status.ERROR
    assert "could not be checked" in broken.message
    assert {"trainer", "GPU", "pool gpu", "sensors"} <= {f.check for f in found}


def test_looking_at_an_instance_creates_no_file(place: Home, instance: dg.DagsterInstance) -> None:
    before = sorted(place.root.rglob("*"))
    assert "sensors" in {f.check for f in examine(place)}
    # SQLite's shared memory comes and goes with its connections.
    created = [p for p in place.root.rglob("*") if p not in before and p.suffix not in (".db-shm", ".db-wal")]
    assert created == []


# Folders


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("/tmp/x/y", "below /tmp"),
        ("/srv/.tmp_dagster_home_ab12", "made by dagster dev without DAGSTER_HOME"),
    ],
)
def test_a_temporary_dagster_home_is_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch, folder: str, why: str
) -> None:
    monkeypatch.setattr(state_folder, "_TEMPORARY", ("/tmp",))
    monkeypatch.setenv("DAGSTER_HOME", folder)
    found = only(state_folder.check_dagster_home(Home(home)))
    assert found.status is Status.ERROR
    assert f"{folder} is temporary ({why})" in found.message


def test_a_home_in_memory_is_an_error(place: Home) -> None:
    if state_folder.filesystem(Path("/dev/shm")) != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    found = only(state_folder.check_home(Home(Path("/dev/shm/nvtrader"))))
    assert found.status is Status.ERROR
    assert "in memory, tmpfs" in found.message


def test_a_relative_dagster_home_is_an_error(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "dagster")
    assert only(state_folder.check_dagster_home(place)).status is Status.ERROR


def test_a_home_that_cannot_be_written_to_is_an_error_and_one_that_can_is_in_order(place: Home) -> None:
    place.root.parent.mkdir(exist_ok=True)
    place.root.write_text("a file in its place")
    assert only(state_folder.check_dagster_home(place)).status is Status.ERROR
    place.root.unlink()
    place.dagster_home.mkdir(parents=True)
    assert only(state_folder.check_dagster_home(place)).status is Status.OK


# dagster.yaml


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        ("concurrency.pools.default_limit", 2, Status.ERROR),
        ("concurrency.pools.default_limit", None, Status.ERROR),
        ("concurrency.pools.granularity", "run", Status.WARNING),
        ("run_monitoring.enabled", False, Status.ERROR),
        ("run_monitoring.free_slots_after_run_end_seconds", None, Status.ERROR),
        ("run_monitoring.max_resume_run_attempts", 3, Status.ERROR),
        ("run_monitoring.start_timeout_seconds", 180, Status.WARNING),
        ("run_queue.max_user_code_failure_retries", None, Status.WARNING),
        ("run_retries.enabled", False, Status.WARNING),
        ("run_retries.retry_on_asset_or_op_failure", True, Status.WARNING),
        ("sensors.use_threads", None, Status.WARNING),
    ],
)
def test_a_wrong_setting_is_named_with_what_to_write(place: Home, key: str, value: Any, status: Status) -> None:
    settings = yaml.safe_load(packaged("dagster.yaml").read_text())
    *above, name = key.split(".")
    section = settings
    for part in above:
        section = section[part]
    section.pop(name, None)
    if value is not None:
        section[name] = value
    place.dagster_home.mkdir(parents=True)
    (place.dagster_home / "dagster.yaml").write_text(yaml.safe_dump(settings))
    found = only(check_dagster_settings(place))
    assert found.status is status
    assert found.message.startswith(f"{key} is {'not set' if value is None else str(value).lower()}: ")
    assert f"write {key}: " in found.remedy


def test_the_packaged_settings_are_in_order_and_what_dagster_refuses_is_an_error(place: Home) -> None:
    place.dagster_home.mkdir(parents=True)
    file = place.dagster_home / "dagster.yaml"
    file.write_text(packaged("dagster.yaml").read_text())
    assert only(check_dagster_settings(place)).status is Status.OK
    file.write_text("run_monitoring: {enable: true}\n")
    found = only(check_dagster_settings(place))
    assert found.status is Status.ERROR
    assert "Dagster refuses" in found.message


# The instance


def test_a_pool_limit_set_by_hand_wins_over_the_file(instance: dg.DagsterInstance) -> None:
    assert only(instance_checks.check_pool(instance)).status is Status.OK
    instance.event_log_storage.set_concurrency_slots("gpu", 2)
    found = only(instance_checks.check_pool(instance))
    assert found.status is Status.ERROR
    assert found.remedy == "dagster instance concurrency set gpu 1"
    instance.event_log_storage.set_concurrency_slots("gpu", 1)
    assert only(instance_checks.check_pool(instance)).status is Status.OK


@dg.op(pool="gpu")
def train() -> None: ...


@dg.job
def training() -> None:
    train()


def test_a_slot_of_an_ended_run_is_found(instance: dg.DagsterInstance) -> None:
    run = instance.create_run_for_job(training, status=dg.DagsterRunStatus.STARTED)
    instance.event_log_storage.initialize_concurrency_limit_to_default("gpu")
    instance.event_log_storage.claim_concurrency_slot("gpu", run.run_id, "train")
    assert only(instance_checks.check_slots(instance)).status is Status.OK
    instance.report_run_failed(run)
    found = only(instance_checks.check_slots(instance))
    assert found.status is Status.WARNING
    assert f"run {run.run_id[:8]} (failure) holds a slot of pool gpu" in found.message


def test_a_run_whose_worker_is_gone_is_found(
    instance: dg.DagsterInstance, process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    worker = process("sleep", "60")
    run = instance.create_run_for_job(training, status=dg.DagsterRunStatus.STARTED)
    instance.report_engine_event("started", run, EngineEventData.in_process(worker.pid))
    assert only(instance_checks.check_lost_runs(instance)).status is Status.OK
    worker.kill()
    worker.wait()
    found = only(instance_checks.check_lost_runs(instance))
    assert found.status is Status.WARNING
    assert f"there is no process {worker.pid}" in found.message


def beat(instance: dg.DagsterInstance, age: float, *names: str) -> None:
    for name in names:
        instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - age, name, "id", []))


def test_a_daemon_that_does_not_run_is_a_warning_and_one_that_half_runs_an_error(
    instance: dg.DagsterInstance,
) -> None:
    assert "it does not run: nothing starts by itself" in only(automation.check_daemon(instance)).message
    beat(instance, 3 * 3600, *DAEMONS)
    found = only(automation.check_daemon(instance))
    assert found.status is Status.WARNING
    assert "last seen 3 h ago" in found.message
    beat(instance, 0, *DAEMONS[1:])
    found = only(automation.check_daemon(instance))
    assert found.status is Status.ERROR
    assert "no sign of life from SENSOR" in found.message
    beat(instance, 0, *DAEMONS)
    assert only(automation.check_daemon(instance)).status is Status.OK


def state(name: str, status: InstigatorStatus, location: str = automation.LOCATION, ago: float = 0) -> InstigatorState:
    """What Dagster stores about a sensor, as the UI and the daemon write it."""
    target = LoadableTargetOrigin(module_name="nvtrader_rl_dagster.definitions")
    repository = RemoteRepositoryOrigin(
        ManagedGrpcPythonEnvCodeLocationOrigin(loadable_target_origin=target, location_name=location), "__repository__"
    )
    data = SensorInstigatorData(min_interval=10, last_tick_start_timestamp=time.time() - ago)
    return InstigatorState(RemoteInstigatorOrigin(repository, name), InstigatorType.SENSOR, status, data)


def test_a_sensor_that_was_switched_off_in_the_ui_is_an_error(instance: dg.DagsterInstance) -> None:
    assert only(automation.check_sensors(instance)).status is Status.OK
    instance.add_instigator_state(state("gpu_janitor", InstigatorStatus.STOPPED))
    found = only(automation.check_sensors(instance))
    assert found.status is Status.ERROR
    assert found.message == "sensor gpu_janitor is switched off"


def test_a_sensor_that_is_not_evaluated_although_the_daemon_runs_is_an_error(instance: dg.DagsterInstance) -> None:
    instance.add_instigator_state(state("gpu_janitor", InstigatorStatus.DECLARED_IN_CODE, ago=600))
    assert only(automation.check_sensors(instance)).status is Status.OK  # nothing is evaluated without a daemon
    beat(instance, 0, *DAEMONS)
    found = only(automation.check_sensors(instance))
    assert found.status is Status.ERROR
    assert found.message == "gpu_janitor: last evaluated 10 min ago, although the daemon runs"


def test_another_location_name_is_found(instance: dg.DagsterInstance) -> None:
    instance.add_instigator_state(state("gpu_janitor", InstigatorStatus.RUNNING))
    assert only(automation.check_location(instance)).status is Status.OK
    instance.add_instigator_state(state("gpu_janitor", InstigatorStatus.RUNNING, "nvtrader_rl_dagster.definitions"))
    found = only(automation.check_location(instance))
    assert found.status is Status.WARNING
    assert "under the location name nvtrader_rl_dagster.definitions" in found.message


# Trainings


def test_the_lease_says_which_run_holds_it(place: Home) -> None:
    assert only(trainings.check_lease(place)).message == "the GPU is free"
    lease = GpuLease(place.lease)
    assert lease.acquire({"run_id": "dpo-1", "pid": os.getpid()}, 0)
    try:
        found = only(trainings.check_lease(place))
        assert (found.status, found.message) == (Status.OK, f"run dpo-1 has the GPU (pid {os.getpid()})")
    finally:
        lease.release()
    assert only(trainings.check_lease(place)).message == "the GPU is free"


def test_a_stranger_on_the_lease_is_named(place: Home, process: Callable[..., subprocess.Popen[bytes]]) -> None:
    place.lease.parent.mkdir(parents=True)
    place.lease.touch()
    hold = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); time.sleep(60)"
    stranger = process(sys.executable, "-S", "-c", hold, str(place.lease))
    deadline = time.monotonic() + 20
    while not trainings.lock_holders(place.lease) and time.monotonic() < deadline:
        time.sleep(0.05)
    found = only(trainings.check_lease(place))
    assert found.status is Status.WARNING
    assert f"pid {stranger.pid} locks {place.lease}" in found.message


def test_leftovers_of_a_killed_supervisor_are_found(
    place: Home, process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    run = RunStore(place.runs).create("dpo", "local")
    run.update(state=RunState.RUNNING)
    assert only(trainings.check_leftovers(place)).status is Status.OK
    left = process("sleep", "60", **{LAUNCH_VARIABLE: "ab", LEASE_VARIABLE: str(place.lease)})
    run.update(creator=ProcessIdentity(os.getpid(), 1, "an earlier boot"))
    trainer, lost = trainings.check_leftovers(place)
    assert f"pid {left.pid} is left over" in trainer.message
    assert lost.message == f"run {run.run_id} is running, and whoever ran it is gone"


# Inputs


def test_feedback_is_counted_and_a_store_that_does_not_answer_is_an_error(place: Home) -> None:
    store = FeedbackStore(place.store_url)
    assert only(inputs.check_feedback(place)).message == "the store is empty"
    store.append([preference("q", "a", "b")])
    store.close()
    assert only(inputs.check_feedback(place)).message == "1 events, 0 rows set aside"
    (place.root / "feedback.db").write_text("no database" * 100)
    assert only(inputs.check_feedback(place)).status is Status.ERROR


# Capacity


def test_disk_and_memory_are_compared_with_what_the_base_model_needs(place: Home, tmp_path: Path) -> None:
    run = run_of(place, str(model_folder(tmp_path / "huge", 10**13)))
    disk, memory = only(capacity.check_disk(place)), only(capacity.check_memory(place))
    assert (disk.status, memory.status) == (Status.ERROR, Status.ERROR)
    assert f"the 10,000,000 M parameters of {tmp_path / 'huge'}, as in run {run.run_id}" in disk.message
    assert "needs 200000.0 GB" in memory.message


def test_a_small_model_needs_little(place: Home, tmp_path: Path) -> None:
    run_of(place, str(model_folder(tmp_path / "small", 1_000_000)))
    disk = only(capacity.check_disk(place))
    assert "needs up to 64 MB: 4 checkpoints of 16 MB" in disk.message
    assert "needs 20 MB" in only(capacity.check_memory(place)).message


def test_a_model_of_unknown_size_is_measured_by_its_newest_checkpoint(place: Home) -> None:
    run = run_of(place, "somebody/unknown")
    assert only(capacity.check_disk(place)).status is Status.WARNING
    step = run.checkpoints / "step_3"
    step.mkdir(parents=True)
    (step / "training_info.json").write_bytes(b" " * 1000)
    with (step / "weights").open("wb") as file:
        file.truncate(1 << 43)
    found = only(capacity.check_disk(place))
    assert found.status is Status.ERROR
    assert f"the size of step_3 of run {run.run_id}" in found.message


def test_a_model_in_the_hugging_face_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert model_size.count_parameters("org/model") is None
    (tmp_path / "hub" / "models--org--model" / "snapshots").mkdir(parents=True)
    model_folder(tmp_path / "hub" / "models--org--model" / "snapshots" / "abc", 3000)
    assert model_size.count_parameters("org/model") == 3000


def test_a_full_disk_for_ray_is_found(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "_RAY_FREE", 0)
    monkeypatch.setattr(capacity, "_RAY_FULL", 1.0)
    assert only(capacity.check_ray_folder(place)).status is Status.OK
    monkeypatch.setattr(capacity, "_RAY_FULL", 0.0)
    assert only(capacity.check_ray_folder(place)).status is Status.WARNING


# GPU, trainers, Ray


@pytest.mark.parametrize(
    ("prints", "status", "message"),
    [
        ("NVIDIA H200, 9.0, 580.1, 143771, 4", Status.OK, "NVIDIA H200: 150.8 GB, 4 MB of it in use, capability 9.0"),
        ("NVIDIA GB10, 12.1, 580.1, [N/A], [N/A]", Status.OK, "NVIDIA GB10: memory shared with the CPU"),
        ("NVIDIA GB10, 12.1, 580.1, Not Supported, Not Supported", Status.OK, "capability 12.1, driver 580.1"),
        ("NVIDIA K80, [N/A], 470.1, 11441, 0", Status.OK, "0 MB of it in use, driver 470.1"),
        ("something else", Status.WARNING, "its answer is not understood: something else"),
        ("NVIDIA-SMI has failed because it could not talk to the driver.\nexit 9", Status.WARNING, "has failed"),
    ],
)
def test_the_gpu_is_what_nvidia_smi_says(
    place: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, status: Status, message: str
) -> None:
    text, _, then = prints.partition("\n")
    script(tmp_path / "bin" / "nvidia-smi", f'echo "{text}"\n{then}\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found = only(gpu.check_gpu(place))
    assert found.status is status
    assert message in found.message


def test_no_gpu_is_no_problem(place: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no NVIDIA GPU is seen" in only(gpu.check_gpu(place)).message


@pytest.fixture
def nemo_rl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NemoRlHost:
    return nemo_rl_host(tmp_path / "host", monkeypatch)


def test_a_nemo_rl_that_is_there_is_in_order_but_for_the_python_of_these_tests(
    place: Home, nemo_rl: NemoRlHost
) -> None:
    found = only(trainers.check_nemo_rl(place))
    if sys.version_info[:2] == (3, 13):
        assert (found.status, found.message[:5]) == (Status.OK, "0.6.0")
    else:
        assert found.status is Status.WARNING and "NeMo-RL asks for 3.13" in found.message
        assert found.remedy.endswith("--only environment")


def test_the_next_release_is_no_problem_and_an_unknown_one_is_an_error(place: Home, nemo_rl: NemoRlHost) -> None:
    nemo_rl.release(7)
    assert only(trainers.check_nemo_rl(place)).status is not Status.ERROR
    nemo_rl.release(9)
    found = only(trainers.check_nemo_rl(place))
    assert found.status is Status.ERROR and "says NeMo-RL 0.9.0" in found.message


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        ("no script", "run_dpo.py is not there"),
        ("no interpreter", "is no interpreter"),
        ("no packages", "lacks ray, transformers"),
        ("no version", "No such file or directory"),
        ("hangs", "did not answer within 0.2 s"),
        ("placeholder", "empty placeholder"),
    ],
)
def test_a_broken_nemo_rl_says_what_is_wrong(
    place: Home, nemo_rl: NemoRlHost, monkeypatch: pytest.MonkeyPatch, breakage: str, message: str
) -> None:
    if breakage == "no script":
        (nemo_rl.tree / "examples" / "run_dpo.py").unlink()
    elif breakage == "no interpreter":
        nemo_rl.python.unlink()
    elif breakage == "no packages":
        nemo_rl.remove("ray")
        nemo_rl.remove("transformers")
    elif breakage == "no version":
        (nemo_rl.tree / "nemo_rl" / "package_info.py").unlink()
    elif breakage == "placeholder":
        nemo_rl.replace("nemo_rl", "0.0.0", address=False)
    else:
        monkeypatch.setenv("NVTRADER_NEMORL_PYTHON", str(nemo_rl.script("slow", "exec sleep 60")))
        monkeypatch.setattr(env_probe, "_INTERPRETER_SECONDS", 0.2)
    found = only(trainers.check_nemo_rl(place))
    assert found.status is Status.ERROR
    assert message in found.message and "bootstrap_nemo_rl.sh" in found.remedy


def test_the_report_about_nemo_rl_is_printed_alone(
    place: Home, nemo_rl: NemoRlHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = CliRunner().invoke(app, ["doctor", "--nemo-rl", "--json"])
    said = json.loads(done.stdout)
    assert done.exit_code == 0 and said["ready"] is True and said["gpus"][0]["name"] == "NVIDIA GB10"
    nemo_rl.remove("ray")
    done = CliRunner().invoke(app, ["doctor", "--nemo-rl"])
    text = " ".join(done.stdout.split())
    assert done.exit_code == 1 and "not bootstrapped" in text and "lacks ray" in text
    assert "bootstrap_nemo_rl.sh --only package" in text


def test_nemo_rl_asked_for_and_not_there_is_an_error(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(trainers.check_trainer(place)).status is Status.OK
    assert only(trainers.check_nemo_rl(place)).status is Status.OK
    monkeypatch.setenv("NVTRADER_RL_BACKEND", "nemo_rl")
    assert only(trainers.check_trainer(place)).status is Status.ERROR
    assert only(trainers.check_nemo_rl(place)).status is Status.ERROR


def test_missing_packages_of_the_embedded_trainer_are_named(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "_EMBEDDED", ("json", "no_such_package"))
    found = only(trainers.check_embedded(place))
    assert found.status is Status.ERROR
    assert "not installed: no_such_package;" in found.message


def test_a_ray_cluster_of_somebody_else_is_found_and_ours_is_not(
    place: Home, tmp_path: Path, process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    daemon = tmp_path / "gcs_server"
    daemon.symlink_to(sleep)
    ours = process(str(daemon), "60", **{LEASE_VARIABLE: str(place.lease)})
    foreign = process(str(daemon), "60")
    deadline = time.monotonic() + 10
    while {Path(f"/proc/{p.pid}/comm").read_text() for p in (ours, foreign)} != {"gcs_server\n"}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    found = list(ray_clusters.check_ray_clusters(place))
    said = " ".join(finding.message for finding in found)
    assert f"gcs_server (pid {foreign.pid})" in said
    assert f"pid {ours.pid}," not in said
    assert {finding.status for finding in found} == {Status.WARNING}
