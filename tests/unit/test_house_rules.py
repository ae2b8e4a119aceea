"""Rules of the house that a reviewer would otherwise have to remember."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

PACKAGE = Path(__file__).resolve().parents[2] / "nvtrader_rl_dagster"
REPO = PACKAGE.parent
DOMAIN = ("feedback", "datasets", "nemo_rl", "evaluation", "rewards")
HEAVY = {"torch", "transformers", "trl", "ray", "datasets", "peft"}


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """Imported module names, and whether the import stands at module level."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        top = node in tree.body
        if isinstance(node, ast.Import):
            yield from ((alias.name, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, top


def modules(*folders: str) -> list[Path]:
    found = [file for folder in folders for file in sorted((PACKAGE / folder).rglob("*.py"))]
    assert found
    return found


@pytest.mark.parametrize("folder", [*DOMAIN, "local_trainer"])
def test_a_domain_folder_never_imports_dagster(folder: str) -> None:
    for file in modules(folder):
        names = {name.split(".")[0] for name, _ in imports(file)}
        assert "dagster" not in names, file
        above = {"assets", "sensors", "resources", "jobs", "cli", "definitions", "schedules"}
        inner = {n.split(".")[1] for n, _ in imports(file) if n.startswith("nvtrader_rl_dagster.")}
        assert not inner & above, file


def test_nothing_outside_the_embedded_trainer_imports_torch_at_module_level() -> None:
    for file in sorted(PACKAGE.rglob("*.py")):
        if "local_trainer" not in file.parts:
            heavy = {name for name, top in imports(file) if top and name.split(".")[0] in HEAVY}
            assert not heavy, f"{file}: {heavy}"


def test_the_embedded_trainer_is_only_started_as_a_process() -> None:
    for file in sorted(PACKAGE.rglob("*.py")):
        if "local_trainer" not in file.parts:
            assert not [n for n, _ in imports(file) if "local_trainer" in n], file


def test_loading_the_definitions_imports_no_heavy_package() -> None:
    code = (
        "import sys, nvtrader_rl_dagster.definitions\n"
        "heavy = {'torch', 'transformers', 'datasets', 'matplotlib', 'pandas', 'pyarrow', 'numpy', 'omegaconf'}\n"
        "import dagster\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_is_a_drawer_for_everything() -> None:
    sizes = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in PACKAGE.rglob("*.py")}
    assert {str(f.relative_to(REPO)): n for f, n in sizes.items() if n > 400} == {}
    assert sizes[PACKAGE / "definitions.py"] < 80


def test_the_workspace_of_the_repository_is_the_packaged_one() -> None:
    packaged = yaml.safe_load((PACKAGE / "instance" / "workspace.yaml").read_text())
    assert yaml.safe_load((REPO / "workspace.yaml").read_text()) == packaged
    (module,) = packaged["load_from"]
    assert module["python_module"]["location_name"] == "nvtrader_rl_dagster"
    assert 'code_location_name = "nvtrader_rl_dagster"' in (REPO / "pyproject.toml").read_text()


def test_every_config_field_has_a_description() -> None:
    from nvtrader_rl_dagster.definitions import defs

    missing = [
        f"{asset.op.name}.{name}"
        for asset in defs.get_repository_def().assets_defs_by_key.values()
        if asset.is_executable
        for name, field in getattr(asset.op.config_schema.config_type, "fields", {}).items()
        if not field.description
    ]
    assert missing == []


def test_the_shipped_instance_settings_are_accepted_by_dagster(tmp_path: Path) -> None:
    import dagster as dg

    (tmp_path / "dagster.yaml").write_text((PACKAGE / "instance" / "dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_monitoring_enabled
        assert instance.get_concurrency_config().pool_config.default_pool_limit == 1


def test_the_documented_reasons_are_those_of_the_code() -> None:
    from nvtrader_rl_dagster.feedback.reasons import REASONS

    text = (REPO / "docs" / "feedback.md").read_text(encoding="utf-8")
    for code, reason in REASONS.items():
        assert f"| `{code}` | {reason.explanation} | {reason.remedy} |" in text
    assert text.count("\n| `") == len(REASONS) + 3 + 8  # and the kinds and the formats
