"""Who rewards the answers of a training: the `env` section and the data blocks."""

from __future__ import annotations

import pytest
from rollout_cases import ROLLOUTS, VERSIONS, built

from nvtrader_rl_dagster.nemo_rl.configs import OPTIONS
from nvtrader_rl_dagster.nemo_rl.driver.scoring import Scoring
from nvtrader_rl_dagster.rewards import REWARDS


@pytest.mark.parametrize("algo", ROLLOUTS)
@pytest.mark.parametrize("environment", ["nvtrader", "math"])
def test_both_data_blocks_name_the_one_environment(algo: str, environment: str) -> None:
    config = built(algo, environment=environment).config
    (name,) = config["env"]
    assert name.startswith(environment)
    assert config["data"]["train"]["env_name"] == config["data"]["validation"]["env_name"] == name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("algo", ROLLOUTS)
def test_the_processor_is_one_of_both_releases(algo: str, version: str) -> None:
    data = built(algo, version=version).config["data"]
    assert {data[block]["processor"] for block in ("train", "validation")} == {"math_hf_data_processor"}


def test_rewards_are_what_the_driver_makes_of_them() -> None:
    env = built("grpo", rewards={"length_sane": 3}, reward_model="/models/rm").config["env"]["nvtrader"]
    scoring = Scoring.from_config(env)
    assert scoring.weights == {"length_sane": 3, "reward_model": 1.0}
    assert not scoring.multi
    assert env["reward_model"] == "/models/rm"


def test_only_gdpo_keeps_rewards_apart() -> None:
    assert {algo: built(algo).config["env"]["nvtrader"]["multi"] for algo in ROLLOUTS} == {
        algo: algo == "gdpo" for algo in ROLLOUTS
    }
    assert set(built("gdpo", environment="math").config["env"]) == {"math_multi_reward"}


@pytest.mark.parametrize("algo", ROLLOUTS)
def test_all_rewards_of_the_project_count_unless_told_otherwise(algo: str) -> None:
    assert OPTIONS[algo]().rewards == dict.fromkeys(REWARDS, 1.0)  # type: ignore[attr-defined]


def test_a_weight_of_zero_takes_a_reward_out() -> None:
    env = built("grpo", rewards={"length_sane": 1, "my.rewards.tone": 0}).config["env"]["nvtrader"]
    assert env["rewards"] == {"length_sane": 1}


@pytest.mark.parametrize(
    ("algo", "options", "said"),
    [
        ("grpo", {"rewards": {"lenght_sane": 1}}, "unknown reward 'lenght_sane'; there are: .*length_sane"),
        ("grpo", {"rewards": {}}, "none has a weight above 0"),
        ("grpo", {"rewards": {"reward_model": 1}}, "the option reward_model names no folder"),
        ("gdpo", {"rewards": {"length_sane": 1}}, "at least two rewards"),
    ],
)
def test_rewards_that_cannot_be_are_refused(algo: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=f"^rewards: .*{said}"):
        built(algo, **options)


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        built("grpo", rewards={"length_sane": -1})
