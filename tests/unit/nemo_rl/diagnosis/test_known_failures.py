"""Every known failure is recognized in a log that has it, and every entry of the table is usable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from diagnosis_excerpts import EXCERPTS

from nvtrader_rl_dagster.nemo_rl.diagnosis.diagnose import diagnose
from nvtrader_rl_dagster.nemo_rl.diagnosis.failure import Kind
from nvtrader_rl_dagster.nemo_rl.diagnosis.page import page
from nvtrader_rl_dagster.nemo_rl.diagnosis.table import BY_CODE, TABLE

REPO = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(("code", "excerpt"), EXCERPTS, ids=[f"{c}-{n}" for n, (c, _) in enumerate(EXCERPTS)])
def test_an_excerpt_gets_its_name_and_a_line_of_it_that_shows_it(tmp_path: Path, code: str, excerpt: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"▶ Setting up data...\n{excerpt}\n")
    found = diagnose(log)
    assert found.failure is not None and found.failure.code == code
    plain = re.sub(r"\x1b\[\d+m(\([^)]*\)\x1b\[0m )?(\(EngineCore.*?\] )?", "", excerpt)
    assert found.line and " ".join(found.line.split()) in " ".join(plain.split()), "what is shown stands in the log"
    assert "\x1b" not in found.line and "pid=" not in found.line.partition(")")[0]


def test_every_failure_that_a_log_can_show_has_an_excerpt() -> None:
    shown = {code for code, _ in EXCERPTS}
    assert shown == {f.code for f in TABLE if f.kind not in (Kind.INFORMATIONAL, Kind.STATE)}


def test_codes_are_unique_and_texts_complete() -> None:
    assert len(BY_CODE) == len(TABLE)
    for failure in TABLE:
        assert re.fullmatch(r"[a-z][a-z0-9_]+", failure.code)
        assert failure.title and failure.shows and failure.meaning.endswith("."), failure.code
        assert failure.remedy.endswith("."), failure.code
        assert not failure.handled or failure.handled.endswith("."), failure.code
        assert bool(failure.raised or failure.printed) is (failure.kind is not Kind.STATE), failure.code
        for pattern in (*failure.raised, failure.frames):
            re.compile(pattern)


def test_the_ten_of_the_specification_are_there() -> None:
    assert sorted(f.gotcha for f in TABLE if f.gotcha is not None) == list(range(1, 11))


def test_the_steps_of_the_bootstrap_that_a_remedy_names_exist() -> None:
    script = (REPO / "scripts" / "bootstrap_nemo_rl.sh").read_text()
    steps = set(re.findall(r"^  \[([\w-]+)\]=", script, re.MULTILINE))
    named = {
        step
        for failure in TABLE
        for names in re.findall(r"--only ([a-z-]+(?:,[a-z-]+)*)", failure.remedy + failure.handled)
        for step in names.split(",")
    }
    assert named and named <= steps


def test_the_page_in_the_docs_is_the_table() -> None:
    written = (REPO / "docs" / "gotchas.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m nvtrader_rl_dagster.nemo_rl.diagnosis > docs/gotchas.md"
    assert all(f"(`{failure.code}`)" in written for failure in TABLE)
