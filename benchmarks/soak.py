"""Many tiny trainings, one after the other, through a real daemon: memory, open files and leftovers must stay flat.

    python benchmarks/soak.py [trainings, default 200]

Prints the medians of the second and the last tenth of the trainings (the first one warms up), and their ratio.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.kill.server import Server
from tests.loop import clear_preferences, import_into

TRAINING = {"base_model": "builtin:tiny", "batch_pairs": 4, "max_steps": 1, "validation_pairs": 4}
PARTS = ("daemon", "webserver", "code_server")
GATE = 1.10
_LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } } } }"""


def measure(server: Server, state: Path) -> dict[str, float]:
    """MiB of resident memory and open files of each part, and what lies about."""
    found: dict[str, float] = {}
    for name in PARTS:
        process = server.part(name)
        found[f"{name} MiB"] = process.memory_info().rss / 2**20
        found[f"{name} files"] = process.num_fds()
    found["processes"] = len(server.tree())
    # Other launches on this machine have folders there, too.
    found["Ray folders left"] = sum(str(state) in mark.read_text() for mark in Path("/tmp").glob("nvr-*/launch.json"))
    runs = [p for p in (state / "nemo_rl" / "runs").iterdir() if not p.name.startswith(".")]
    found["entries per run folder"] = statistics.mean(len(list(run.iterdir())) for run in runs)
    return found


def materialize(server: Server, assets: list[str], config: dict[str, Any]) -> None:
    """Materialize assets as the launchpad does, without their checks, through the queue of the daemon."""
    parameters = {
        "selector": {
            "repositoryLocationName": "nvtrader_rl_dagster",
            "repositoryName": "__repository__",
            "jobName": "feedback_to_champion",
            "assetSelection": [{"path": [name]} for name in assets],
            "assetCheckSelection": [],
        },
        "runConfigData": config,
    }
    answer = server.graphql(_LAUNCH, p=parameters)["launchRun"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    run = answer["run"]["runId"]
    deadline = time.monotonic() + 300
    while (status := status_of(server, run)) not in ("SUCCESS", "FAILURE", "CANCELED"):
        assert time.monotonic() < deadline, status
        time.sleep(0.5)
    assert status == "SUCCESS", f"run {run} ended as {status}; see {server.log}"


def status_of(server: Server, run: str) -> str:
    query = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
    return str(server.graphql(query, id=run)["runOrError"]["status"])


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER", "NVTRADER"))}
        # A threshold that is never reached: only we start trainings.
        environment = {
            **kept,
            "NVTRADER_RL_HOME": str(root / "home"),
            "PREFERENCE_THRESHOLD": "1000000",
            "OMP_NUM_THREADS": "1",
        }
        import_into(root / "home", clear_preferences(root / "feedback.jsonl", prompts=20))
        server = Server(environment, root / "server.log")
        server.start()
        measured: list[dict[str, Any]] = []
        try:
            materialize(server, ["preference_pairs", "nemo_rl_dataset"], {})
            started = time.monotonic()
            for number in range(count):
                materialize(server, ["dpo_checkpoint"], {"ops": {"dpo_checkpoint": {"config": TRAINING}}})
                measured.append(measure(server, root / "home"))
                if number % 10 == 9:
                    pace = (time.monotonic() - started) / (number + 1)
                    print(f"{number + 1} trainings, {pace:.1f} s each", flush=True)
        finally:
            server.stop()
        report(measured)


def report(measured: list[dict[str, Any]]) -> None:
    tenth = max(1, len(measured) // 10)
    worst = 0.0
    for name in measured[0]:
        early = statistics.median(m[name] for m in measured[tenth : 2 * tenth])
        late = statistics.median(m[name] for m in measured[-tenth:])
        ratio = late / early if early else 1 + late
        worst = max(worst, ratio)
        print(f"{name:<24} early {early:8.1f}   late {late:8.1f}   ratio {ratio:.3f}")
    print(f"largest ratio {worst:.3f} (gate {GATE})")
    sys.exit(worst > GATE)


if __name__ == "__main__":
    main()
