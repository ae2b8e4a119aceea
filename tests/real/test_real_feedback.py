"""The loop on feedback that nobody here wrote. The small model trains a few steps: the point is the data."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from nvtrader_rl_dagster import files
from nvtrader_rl_dagster.evaluation.champion import ChampionStore
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.runs import RunStore
from tests.loop import failed_checks, import_into, metadata, run_job

pytestmark = [pytest.mark.real_data, pytest.mark.slow]

SHORT = {"batch_pairs": 16, "max_steps": 3, "learning_rate": 1e-4, "validation_pairs": 16}


def loop(home: Path, file: Path) -> tuple[dict, dg.ExecuteInProcessResult]:
    report = import_into(home, file)
    with dg.DagsterInstance.ephemeral() as instance:
        return report, run_job(instance, training=SHORT, evaluation={"max_sequence_tokens": 2048})


def test_three_annotators_per_pair_end_with_a_checkpoint_scores_and_a_decision(home: Path, real_data: Path) -> None:
    report, result = loop(home, real_data / "pandalm_testset_v1.json")
    assert report["rows"] == 999 == report["usable_pairs"] + sum(report["set_aside"].values())
    assert report["set_aside"]["tie"] > 50 and report["set_aside"]["not_text"] == 6
    assert result.success and set(failed_checks(result)) <= {"gate"}
    assert metadata(result, "dpo_checkpoint")["dpo/steps"] == 3
    scores = metadata(result, "eval_scores")
    assert scores["eval/prompts"] >= 20 and 0 <= scores["eval/accuracy"] <= 1
    assert scores["eval/accuracy_low"] <= scores["eval/accuracy"] <= scores["eval/accuracy_high"]
    assert scores["gate"]
    promoted = ChampionStore(Home(home).champion).current() is not None
    assert promoted == scores["promotable"]


def test_thumbs_on_single_answers_give_one_pair_and_no_training(home: Path, real_data: Path) -> None:
    report, result = loop(home, real_data / "llamafactory_kto_en_demo.json")
    assert (report["rows"], report["usable_pairs"], report["decisions_used"]) == (300, 1, 2)
    assert report["set_aside"] == {"unpaired": 298}
    trl = files.current(Home(home).dataset("trl"))
    assert trl is not None and trl.manifest["kto_rows"] == 298
    # The one pair is held out by its prompt's hash, so there is nothing to train on and nothing is started.
    assert not result.success and failed_checks(result) == ["has_training_pairs"]
    assert list(RunStore(Home(home).runs).all()) == []


def test_sharegpt_pairs_with_system_and_several_turns_train(home: Path, real_data: Path) -> None:
    report, result = loop(home, real_data / "llamafactory_dpo_en_demo.json")
    assert report["rows"] == 300 == report["usable_pairs"] + sum(report["set_aside"].values())
    assert report["set_aside"] == {"duplicate": 5}
    assert result.success and set(failed_checks(result)) <= {"gate"}
    assert metadata(result, "eval_scores")["eval/prompts"] >= 20
