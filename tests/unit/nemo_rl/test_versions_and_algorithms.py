"""Which NeMo-RL a tree is, and what each algorithm is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.versions import SUPPORTED, version_of


def tree(folder: Path, text: str) -> Path:
    (folder / "nemo_rl").mkdir()
    (folder / "nemo_rl" / "package_info.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("minor", "patch", "release"), [(6, 0, "0.6.0"), (6, 1, "0.6.0"), (7, 0, "0.7.0"), (7, 3, "0.7.0")]
)
def test_a_tree_is_read_and_not_run(tmp_path: Path, minor: int, patch: int, release: str) -> None:
    text = f'MAJOR = 0\nMINOR = {minor}\nPATCH = {patch}\nPRE_RELEASE = ""\nraise SystemExit("was run")\n'
    assert version_of(tree(tmp_path, text)) == release


@pytest.mark.parametrize("text", ["MAJOR = 0\nMINOR = 5\nPATCH = 0\n", "MAJOR = 1\nMINOR = 6\nPATCH = 0\n", ""])
def test_another_version_is_refused_with_the_file_and_the_supported_ones(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"package_info\.py says NeMo-RL .*0\.6\.0, 0\.7\.0"):
        version_of(tree(tmp_path, text))


def test_a_folder_without_nemo_rl_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"package_info\.py cannot be read .*NVTRADER_NEMORL_SRC"):
        version_of(tmp_path)


def test_ppo_has_a_script_and_a_value_model_from_0_7_0_on() -> None:
    old, new = (ALGOS["ppo"].release(version) for version in SUPPORTED)
    assert (old.script, old.section, "value" in old.sections) == ("run_grpo.py", "grpo", False)
    assert (new.script, new.section, "value" in new.sections) == ("run_ppo.py", "ppo", True)
    assert ALGOS["ppo"].script == "run_grpo.py"


def test_an_unsupported_release_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'0\.5\.0' is not supported"):
        ALGOS["dpo"].release("0.5.0")


@pytest.mark.parametrize("algo", [name for name in ALGOS if name != "eval"])
def test_the_tracked_metric_is_one_that_validation_measures_and_its_direction_agrees(algo: str) -> None:
    algorithm = ALGOS[algo]
    measured = {algorithm.full_name(spec.name): spec.better for spec in algorithm.validation_metrics}
    assert measured[algorithm.tracked] == ("higher" if algorithm.higher_is_better else "lower")


def test_each_algorithm_has_its_own_section_among_its_sections() -> None:
    for algorithm in ALGOS.values():
        for version in SUPPORTED:
            release = algorithm.release(version)
            assert release.section in release.sections
            assert len(set(release.sections)) == len(release.sections)
