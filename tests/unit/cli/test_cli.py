"""The console script as a person and as a program uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nvtrader_rl_dagster.cli import app
from nvtrader_rl_dagster.evaluation.champion import Champion, ChampionStore
from nvtrader_rl_dagster.home import Home


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def as_json(*arguments: str) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def write(path: Path, *rows: str) -> Path:
    path.write_text("".join(row + "\n" for row in rows))
    return path


PAIR = '{"prompt": "q%d", "chosen": "a", "rejected": "b"}'


def test_import_prints_one_json_object_whose_counts_add_up(home: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "f.jsonl", PAIR % 1, PAIR % 1, PAIR % 2, '{"prompt": "q", "chosen": "a", "rejected": "a"}')
    report = as_json("feedback", "import", str(file))
    assert (report["rows"], report["usable_pairs"], report["events"]) == (4, 2, 2)
    assert report["set_aside"] == {"duplicate": 1, "identical": 1}
    assert report["rows"] == report["usable_pairs"] + sum(report["set_aside"].values())
    assert [Path(f["path"]).name for f in report["files"]] == ["f.jsonl"]
    stats = as_json("feedback", "stats")
    assert {key: stats[key] for key in ("rows", "usable_pairs", "set_aside", "events")} == {
        key: report[key] for key in ("rows", "usable_pairs", "set_aside", "events")
    }
    assert stats["files"] == [{"path": "f.jsonl", "rows": 4}]
    again = as_json("feedback", "import", str(file))
    assert (again["events"], again["usable_pairs"], again["set_aside"]) == (0, 2, report["set_aside"])


def test_import_names_file_line_field_and_remedy(home: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "f.jsonl", PAIR % 1, "", '{"prompt": "q", "chosen": "a", "rejected": "a"}')
    result = run("feedback", "import", str(file))
    assert result.exit_code == 0
    assert "f.jsonl:3 field rejected: identical" in result.stdout
    assert "nothing to prefer" in result.stdout


def test_a_file_that_breaks_off_is_imported_as_far_as_it_goes_and_says_partial(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text(PAIR % 1 + "\n" + '{"prompt": "q2", "cho')
    result = run("feedback", "import", str(file), "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 3
    assert (report["usable_pairs"], report["set_aside"], report["partial"]) == (1, {"truncated_json": 1}, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["feedback", "import", "/no/such/file.jsonl"], "/no/such/file.jsonl"),
        (["feedback", "import", ".", "--format", "parquett"], "parquett"),
        (["feedback", "record", "--prompt", "p"], "--response"),
        (["feedback", "record", "--prompt", "p", "--chosen", "a", "--rejected", "a"], "identical"),
        (["feedback", "undo", "nothing"], "no event"),
        (["champion", "rollback"], "no champion"),
    ],
)
def test_bad_input_is_one_clear_line_and_a_failure_code(home: Path, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code in (1, 2) and message in result.output
    assert "Traceback" not in result.output


def test_one_decision_is_recorded_once(home: Path) -> None:
    decision = ("feedback", "record", "--prompt", "p", "--response", "good", "--approve", "--reviewer", "anna")
    first, second = as_json(*decision), as_json(*decision)
    assert first["new"] and not second["new"] and first["event_id"] == second["event_id"]
    as_json("feedback", "record", "--prompt", "p", "--response", "bad", "--reject", "--edit", "better")
    stats = as_json("feedback", "stats")
    # approved over rejected, and the person's own version over the rejected one
    assert (stats["rows"], stats["usable_pairs"], stats["set_aside"]) == (2, 2, {})


def test_an_undo_takes_a_decision_back_without_deleting_it(home: Path) -> None:
    made = as_json("feedback", "record", "--prompt", "p", "--chosen", "a", "--rejected", "b")
    assert as_json("feedback", "stats")["usable_pairs"] == 1
    as_json("feedback", "undo", made["event_id"])
    stats = as_json("feedback", "stats")
    assert (stats["usable_pairs"], stats["rows"], stats["events"]) == (0, 2, 2)
    assert stats["set_aside"] == {"undo_event": 1, "undone": 1}


def test_a_prompt_can_come_from_standard_input(home: Path) -> None:
    result = run("feedback", "record", "--prompt", "-", "--chosen", "a", "--rejected", "b", stdin="line 1\nline 2")
    assert result.exit_code == 0
    assert "line 1\\nline 2" in run("feedback", "export").stdout


def test_exported_events_import_to_the_same_store(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "▲ +3.2 % — €1.2bn, 買い, عربي, 👩🏽‍💻 e\u0301"
    as_json("feedback", "record", "--prompt", text, "--chosen", "a " + text, "--rejected", "b", "--reviewer", "anna")
    as_json("feedback", "record", "--prompt", "p", "--response", "r", "--reject", "--edit", "e")
    out = tmp_path / "events.jsonl"
    assert run("feedback", "export", str(out)).exit_code == 0
    before = as_json("feedback", "stats")
    monkeypatch.setenv("NVTRADER_RL_HOME", str(tmp_path / "other"))
    as_json("feedback", "import", str(out))
    after = as_json("feedback", "stats")
    assert after.pop("by_file") == {"events.jsonl": 2} and before.pop("by_file") == {}
    assert after.pop("files") == [{"path": "events.jsonl", "rows": 2}] and before.pop("files") == []
    assert after == before
    second = tmp_path / "again.jsonl"
    run("feedback", "export", str(second))

    def rows(path: Path) -> list[dict]:
        # Only where it was read from is added.
        return [{k: v for k, v in json.loads(x).items() if k != "metadata"} for x in path.read_text().splitlines()]

    assert rows(second) == rows(out) and text in second.read_text()


@pytest.mark.parametrize(
    ("shape", "key"), [("trl", "chosen"), ("nemo_rl", "completions"), ("helpsteer3", "overall_preference")]
)
def test_pairs_are_exported_in_a_trainers_shape_and_import_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, key: str
) -> None:
    as_json("feedback", "import", str(write(tmp_path / "f.jsonl", PAIR % 1, PAIR % 2)))
    out = tmp_path / "out.jsonl"
    assert run("feedback", "export", str(out), "--shape", shape).exit_code == 0
    assert all(key in json.loads(line) for line in out.read_text().splitlines())
    monkeypatch.setenv("NVTRADER_RL_HOME", str(tmp_path / "other"))
    report = as_json("feedback", "import", str(out))
    assert (report["rows"], report["usable_pairs"]) == (2, 2)


def test_champion_commands_show_the_pointer_and_walk_back(home: Path) -> None:
    assert as_json("champion", "show") == {"champion": None}
    assert "base model serves" in run("champion", "history").stdout
    store = ChampionStore(Home(home).champion)
    for name, previous in (("a", None), ("b", "a")):
        ts = "2026-01-01T00:00:00.000Z"
        store.promote(Champion(name, "path", "builtin:tiny", "0" * 64, ts, 0.75, "won [0.6, 0.9]", previous))
    assert as_json("champion", "show")["champion"]["checkpoint_id"] == "b"
    assert "won [0.6, 0.9]" in run("champion", "show").stdout
    assert as_json("champion", "rollback", "--reason", "worse in use")["champion"]["checkpoint_id"] == "a"
    changes = as_json("champion", "history")["history"]
    assert [c["what"] for c in changes] == ["promoted", "promoted", "rolled_back"]
    assert "worse in use" in run("champion", "history").stdout


def test_up_writes_the_settings_once_and_leaves_the_users_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nvtrader_rl_dagster.cli.up import prepare_home, workspace_file

    monkeypatch.setenv("DAGSTER_HOME", "")
    prepared = prepare_home()
    settings = prepared.dagster_home / "dagster.yaml"
    assert "default_limit: 1" in settings.read_text() and workspace_file().exists()
    settings.write_text("telemetry:\n  enabled: false\n")
    prepare_home()
    assert settings.read_text() == "telemetry:\n  enabled: false\n"
