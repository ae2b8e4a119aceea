"""Feedback that other people gave: counts and identities on files outside the project."""

from __future__ import annotations

import json

import pytest

from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.pair_report import build_pairs, iter_pairs

pytestmark = pytest.mark.real_data


def test_pandalm_rows_all_have_a_fate(store, real_data):
    report = import_paths(store, [real_data / "pandalm_testset_v1.json"])
    assert report.rows == 999 == report.usable_pairs + sum(report.set_aside.values())
    assert report.files[0].formats["pandalm"] + report.files[0].refused == 999
    assert report.usable_pairs > 700
    assert report.set_aside["not_text"] == 6 and report.set_aside["tie"] > 0


def test_kto_rows_give_one_pair_and_the_rest_is_unpaired(store, real_data):
    report = import_paths(store, [real_data / "llamafactory_kto_en_demo.json"])
    assert (report.rows, report.usable_pairs, report.decisions_used) == (300, 1, 2)
    assert report.set_aside == {"unpaired": 298}


def test_sharegpt_pairs_come_back_byte_for_byte(store, real_data):
    path = real_data / "llamafactory_dpo_en_demo.json"
    report = import_paths(store, [path])
    assert report.rows == 300 and report.usable_pairs == 295 and report.set_aside == {"duplicate": 5}
    rows = json.loads(path.read_text(encoding="utf-8"))
    wanted = {(r["conversations"][-1]["value"], r["chosen"]["value"], r["rejected"]["value"]) for r in rows}
    found = {(p.prompt[-1]["content"], p.chosen[0]["content"], p.rejected[0]["content"]) for p in iter_pairs(store)}
    assert found == wanted


def test_all_files_in_one_store_still_add_up(store, real_data):
    report = import_paths(store, sorted(real_data.glob("*.json")))
    built = build_pairs(store)
    assert built.decisions == report.rows == 1599
    assert built.decisions == built.used + sum(built.set_aside.values())
