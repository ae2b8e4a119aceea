"""The champion pointer: atomic, with a history, and with a way back that stays back."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from nvtrader_rl_dagster.evaluation.champion import Champion, ChampionStore


def champion(name: str, previous: str | None = None) -> Champion:
    return Champion(name, f"runs/{name}", "builtin:tiny", "0" * 64, "2026-01-01T00:00:00.000Z", 0.7, "won", previous)


def test_there_is_none_at_first(tmp_path: Path) -> None:
    store = ChampionStore(tmp_path / "champion")
    assert store.current() is None and store.history() == []


def test_promotions_are_kept_in_order_and_rollback_walks_back(tmp_path: Path) -> None:
    store = ChampionStore(tmp_path)
    store.promote(champion("a"))
    store.promote(champion("b", "a"))
    assert ChampionStore(tmp_path).current() == champion("b", "a")
    assert store.rollback("2026-01-02T00:00:00.000Z", "worse in use") == champion("a")
    assert store.rollback("2026-01-03T00:00:00.000Z", "worse in use") is None
    assert [(c.what, c.checkpoint_id, c.replaced) for c in store.history()] == [
        ("promoted", "a", None),
        ("promoted", "b", "a"),
        ("rolled_back", "a", "b"),
        ("rolled_back", None, "a"),
    ]
    assert store.was_rolled_back("b") and store.was_rolled_back("a") and not store.was_rolled_back("c")


def test_a_decision_against_an_older_champion_cannot_replace_a_newer_one(tmp_path: Path) -> None:
    store = ChampionStore(tmp_path)
    store.promote(champion("a"))
    with pytest.raises(ValueError, match="the champion is a now, not None"):
        store.promote(champion("b", None))
    assert store.current() == champion("a")


def test_rolling_back_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no champion"):
        ChampionStore(tmp_path).rollback("2026-01-02T00:00:00.000Z", "x")


def _promote(root: Path, name: str) -> bool:
    try:
        ChampionStore(root).promote(champion(name))
    except ValueError:
        return False
    return True


def test_of_two_promotions_at_the_same_time_one_wins(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        won = pool.starmap(_promote, [(tmp_path, f"c{n}") for n in range(8)])
    assert sum(won) == 1
    assert len(ChampionStore(tmp_path).history()) == 1
