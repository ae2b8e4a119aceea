"""The product as its user sees it: `nvtrader-rl demo`, then `nvtrader-rl up` in a real browser."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from nvtrader_rl_dagster.nemo_rl import list_runs
from nvtrader_rl_dagster.nemo_rl.runs import RunState
from tests.loop import clear_preferences

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
ENDED = ("SUCCESS", "FAILURE", "CANCELED")
CLI = [sys.executable, "-m", "nvtrader_rl_dagster.cli"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("e2e") / "home"


@pytest.fixture(scope="module")
def environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER", "NVTRADER"))}
    return {
        **kept,
        "NVTRADER_RL_HOME": str(home),
        "NVTRADER_RL_BASE_MODEL": "builtin:tiny",
        "PREFERENCE_THRESHOLD": "40",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }


@pytest.fixture(scope="module")
def demo(environment: dict[str, str]) -> str:
    """Output of one demo on the packaged sample with the small model."""
    command = [*CLI, "demo", "--base-model", "builtin:tiny"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def server(environment: dict[str, str], demo: str, home: Path) -> Iterator[str]:
    """`nvtrader-rl up` on a free port; its whole process group ends with the test."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (home / "up.log").open("w")
    process = subprocess.Popen(
        [*CLI, "up", "--port", str(port)], env=environment, stdout=log, stderr=log, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                httpx.get(f"{url}/server_info").raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None and time.monotonic() < deadline, (home / "up.log").read_text()
                time.sleep(0.5)
        yield url
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        _, alive = psutil.wait_procs([psutil.Process(process.pid), *children], timeout=20)
        for survivor in alive:
            survivor.kill()


@pytest.fixture(scope="module")
def page(server: str) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium; install the package chromium or set CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(60_000)
        yield page
        browser.close()


def graphql(url: str, query: str, **variables: Any) -> Any:
    answer = httpx.post(f"{url}/graphql", json={"query": query, "variables": variables}, timeout=30)
    answer.raise_for_status()
    body = answer.json()
    assert "errors" not in body, body
    return body["data"]


def finished_runs(url: str, before: set[str], count: int) -> list[dict[str, Any]]:
    """Wait for `count` finished runs that were not there before."""
    deadline = time.monotonic() + 180
    while True:
        new = [run for run in runs(url) if run["runId"] not in before]
        done = [run for run in new if run["status"] in ENDED]
        if len(done) >= count:
            return done
        assert time.monotonic() < deadline, new
        time.sleep(1)


def runs(url: str) -> list[dict[str, Any]]:
    query = "{ runsOrError { ... on Runs { results { runId status assetSelection { path } tags { key value } } } } }"
    found: list[dict[str, Any]] = graphql(url, query)["runsOrError"]["results"]
    return found


def tags(run: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["tags"]}


def last_skip_reason(url: str, sensor: str) -> str:
    """Why the sensor's newest tick started nothing, as its page shows it."""
    query = """query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor {
      sensorState { ticks(limit: 1, statuses: [SKIPPED]) { skipReason } } } } }"""
    selector = {
        "sensorName": sensor,
        "repositoryName": "__repository__",
        "repositoryLocationName": "nvtrader_rl_dagster",
    }
    (tick,) = graphql(url, query, s=selector)["sensorOrError"]["sensorState"]["ticks"]
    return str(tick["skipReason"])


def test_the_demo_says_what_a_person_wants_to_know(demo: str) -> None:
    for part in ("393 decisions, usable pairs: 177", "held-out accuracy", "promoted", "make up", "steps trained"):
        assert part in demo, demo
    assert "step 0 0.6931" in demo
    assert "Traceback" not in demo


def test_the_location_has_its_fixed_name_and_all_assets(server: str) -> None:
    query = "{ repositoriesOrError { ... on RepositoryConnection { nodes { location { name } } } } }"
    (node,) = graphql(server, query)["repositoriesOrError"]["nodes"]
    assert node["location"]["name"] == "nvtrader_rl_dagster"
    assets = graphql(server, "{ assetNodes { assetKey { path } description groupName } }")["assetNodes"]
    assert len(assets) == 9 and all(a["description"] and a["groupName"] != "default" for a in assets)


def test_the_asset_graph_loads(page: Any, server: str) -> None:
    page.goto(f"{server}/asset-groups")
    for group in ("preferences", "datasets", "training", "evaluation", "promotion"):
        page.get_by_text(group, exact=True).first.wait_for()


def test_the_checkpoint_page_shows_the_curve(page: Any, server: str) -> None:
    page.goto(f"{server}/assets/dpo_checkpoint?view=overview")
    page.get_by_text("[Show Markdown]").first.click()
    image = page.locator('img[src^="data:image/png;base64,"]')
    image.wait_for()
    assert image.evaluate("i => i.complete && i.naturalWidth") > 500
    page.keyboard.press("Escape")


def test_a_materialization_started_from_the_page_succeeds(page: Any, server: str) -> None:
    before = {run["runId"] for run in runs(server)}
    page.goto(f"{server}/assets/preference_pairs")
    page.get_by_text("Materialize", exact=True).first.click()
    (started,) = finished_runs(server, before, 1)
    assert started["status"] == "SUCCESS"
    assert started["assetSelection"] == [{"path": ["preference_pairs"]}]
    # The automation sensor is on: the data sets follow by themselves.
    follower = next(run for run in finished_runs(server, before, 2) if run["runId"] != started["runId"])
    assert follower["status"] == "SUCCESS"
    assert {asset["path"][0] for asset in follower["assetSelection"]} == {
        "nemo_rl_dataset",
        "helpsteer3_dataset",
        "trl_dataset",
    }


def test_a_dropped_file_becomes_a_scored_model_with_nobody_at_the_keyboard(page: Any, server: str, home: Path) -> None:
    """Inbox sensor → import → threshold sensor → training → scores, and the automation page says where it stands."""
    before = {run["runId"] for run in runs(server)}
    clear_preferences(home / "inbox" / "monday.jsonl")
    deadline = time.monotonic() + 240
    while not (trained := [r for r in runs(server) if r["runId"] not in before and "nvtrader/window" in tags(r)]):
        assert time.monotonic() < deadline, runs(server)
        time.sleep(1)
    assert (home / "inbox" / "imported" / "monday.jsonl").exists()
    while (run := next(r for r in runs(server) if r["runId"] == trained[0]["runId"]))["status"] not in ENDED:
        assert time.monotonic() < deadline, run
        time.sleep(1)
    assert run["status"] == "SUCCESS"
    (record,) = [r for r in list_runs(home=home) if r.dagster_run_id == run["runId"]]
    assert record.state is RunState.SUCCEEDED and record.trained_through_seq == int(tags(run)["nvtrader/window"][37:])
    assert list((home / "evals").glob(f"{record.run_id}-step_*/scores.json"))
    page.goto(f"{server}/automation")
    for name in ("preference_threshold", "feedback_inbox", "gpu_janitor", "nightly_loop", "weekly_champion"):
        page.get_by_text(name, exact=True).first.wait_for()
    page.goto(f"{server}/locations/nvtrader_rl_dagster/sensors/preference_threshold")
    page.get_by_text("preference_threshold").first.wait_for()
    assert "of 40 usable pairs" in last_skip_reason(server, "preference_threshold")
    assert len([r for r in runs(server) if "nvtrader/window" in tags(r)]) == 1


def test_a_demo_without_a_usable_pair_says_so_and_fails(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "thumbs.jsonl"
    file.write_text('{"prompt": "p", "completion": "a", "label": true}\n')
    command = [*CLI, "demo", "--data", str(file), "--base-model", "builtin:tiny"]
    own = {**environment, "NVTRADER_RL_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "check has_training_pairs failed: 0 training pairs" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
