"""`nvtrader-rl config`: the YAML of an algorithm, as a run would write it, on standard output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from nvtrader_rl_dagster.cli.console import errors, fail
from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS, DataShape
from nvtrader_rl_dagster.nemo_rl.versions import DEFAULT_VERSION, SUPPORTED

#: What stands in the YAML for a file that was not named, and the rows that it is taken to have.
_EXAMPLE_FOLDER = Path("path/to/data")
_EXAMPLE_ROWS = {"train": 1024, "validation": 128, "benchmark": 128}
_EXAMPLE_MODEL = "path/to/model"


def config(
    algo: str = typer.Argument(help=f"One of {', '.join(ALGOS)}.", show_default=False),
    nemo_rl: str = typer.Option(DEFAULT_VERSION, "--nemo-rl", help=f"NeMo-RL's version: {' or '.join(SUPPORTED)}."),
    model: str = typer.Option("", help="Hugging Face folder to start from; for eval, the one to score."),
    train: Path = typer.Option(None, help="Training rows; they decide batch and steps. For eval, the benchmark."),
    validation: Path = typer.Option(None, help="Held-out rows. Without --train there are example files for both."),
    gpus: int = typer.Option(1, min=1, help="GPUs of the node."),
    set_: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Any key of the YAML, by its dotted name."),
    option: list[str] = typer.Option([], metavar="NAME=VALUE", help="An option of the training, see --list-options."),
    list_options: bool = typer.Option(False, "--list-options", help="Print the options of the algorithm instead."),
    checkpoints: Path = typer.Option(Path("results/checkpoints"), help="Folder of the checkpoints."),
    logs: Path = typer.Option(Path("results/logs"), help="Folder of NeMo-RL's own logs."),
) -> None:
    """Print the complete NeMo-RL YAML of an algorithm. Notes about it go to standard error."""
    import yaml

    from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, OPTIONS, Target

    if algo not in ALGOS:
        fail(f"there is no algorithm {algo!r}; there are: {', '.join(ALGOS)}", 2)
    if list_options:
        for name, field in OPTIONS[algo].model_fields.items():
            default = "{}" if name == "overrides" else str(field.default)
            typer.echo(f"{name} (default {default or 'empty'}): {field.description}")
        return
    try:
        named = _assignments(option, "--option")
        if nearest := _unknown_option(named, OPTIONS[algo].model_fields):
            fail(nearest, 2)
        named["overrides"] = {**named.get("overrides", {}), **_assignments(set_, "--set")}
        named.setdefault("base_model", model or _EXAMPLE_MODEL)
        options = OPTIONS[algo](**named)
        release = ALGOS[algo].release(nemo_rl)
        data, placeholders = _data(algo, train, validation)
        built = BUILDERS[algo](options, data, checkpoints, logs, Target(nemo_rl, gpus))
    except ValueError as error:
        fail(_first(error), 2)
    # Answers are rewarded by environments that our driver registers before NeMo-RL's script runs.
    driver = "-m nvtrader_rl_dagster.nemo_rl.driver " if ALGOS[algo].data is DataShape.PROMPTS else ""
    typer.echo(f"# NeMo-RL {nemo_rl}: python {driver}examples/{release.script} --config THIS_FILE")
    if not model and named["base_model"] == _EXAMPLE_MODEL:
        placeholders.append(f"{_EXAMPLE_MODEL} is an example: name the model with --model")
    for line in placeholders:
        typer.echo(f"# {line}")
    typer.echo(yaml.safe_dump(built.config, sort_keys=False), nl=False)
    for note in built.notes:
        errors.print(f"note: {note}", markup=False, soft_wrap=True)


def _data(algo: str, train: Path | None, validation: Path | None) -> tuple[Any, list[str]]:
    """The data set of the named files, with absolute paths; or of example files, with a line that says so."""
    from nvtrader_rl_dagster.nemo_rl.configs import BenchmarkData, ChatData, PreferenceData, PromptData
    from nvtrader_rl_dagster.nemo_rl.configs.row_counts import count_rows

    shape = ALGOS[algo].data
    if train is None and validation is not None:
        raise ValueError("--validation needs --train")
    if shape is DataShape.BENCHMARK:
        if train is not None:
            return BenchmarkData(train.resolve(), count_rows(train)), []
        file = _EXAMPLE_FOLDER / "benchmark.jsonl"
        return BenchmarkData(file, _EXAMPLE_ROWS["benchmark"]), [f"{file} is an example: name the file with --train"]
    kind = {DataShape.PREFERENCE: PreferenceData, DataShape.CHAT: ChatData, DataShape.PROMPTS: PromptData}[shape]
    if train is None:
        files = _EXAMPLE_FOLDER / "train.jsonl", _EXAMPLE_FOLDER / "validation.jsonl"
        rows = _EXAMPLE_ROWS["train"], _EXAMPLE_ROWS["validation"]
        line = (
            f"the files in {_EXAMPLE_FOLDER} are examples, taken to have {rows[0]} and {rows[1]} rows: name yours with "
            "--train and --validation"
        )
        return kind(*files, *rows), [line]
    held_out = count_rows(validation) if validation else 0
    return kind(train.resolve(), validation.resolve() if validation else None, count_rows(train), held_out), []


def _assignments(texts: list[str], flag: str) -> dict[str, Any]:
    """`a.b=value` arguments, each value typed as YAML types it. Raises `ValueError` for anything else."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"{flag} {text}: write it as name=value")
        try:
            parsed = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={value}"]))
        except (OmegaConfBaseException, YAMLError) as error:
            raise ValueError(f"{flag} {text}: the value is no YAML ({str(error).splitlines()[0]})") from error
        assert isinstance(parsed, dict)
        values[name] = parsed["value"]
    return values


def _unknown_option(named: dict[str, Any], fields: dict[str, Any]) -> str:
    from difflib import get_close_matches

    for name in named:
        if name not in fields:
            (near,) = get_close_matches(name, fields, n=1, cutoff=0.0)
            return f"--option {name}: there is no such option; the nearest is {near}, see --list-options"
    return ""


def _first(error: ValueError) -> str:
    """The message; of a pydantic error, its first one with the name of the option."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    wrong = error.errors()[0]
    return f"--option {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}, not {wrong['input']!r}"
