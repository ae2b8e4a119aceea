"""Known failures of rows and data sets."""

from __future__ import annotations

from nvtrader_rl_dagster.nemo_rl.diagnosis.failure import KnownFailure

_OUR_FILES = "The data sets that `nemo_rl_dataset` writes are checked row by row."

DATA = (
    KnownFailure(
        code="helpsteer3_download",
        title="HelpSteer3 instead of your data",
        shows="Couldn't reach 'nvidia/HelpSteer3' on the Hub · Generating train split: 38459 examples",
        meaning="The reference YAML has data.train.dataset_name: HelpSteer3, and only data_path was changed. Online, "
        "the training runs on 38,000 rows of somebody else's preferences.",
        handled="The builders write the whole data section (PreferenceDataset with your file); nothing of the "
        "reference stays.",
        remedy="Set data.train to {dataset_name: PreferenceDataset, data_path: FILE}, or let nvtrader-rl config dpo "
        "write the YAML.",
        raised=(r"nvidia/HelpSteer3",),
        gotcha=8,
    ),
    KnownFailure(
        code="trl_rows",
        title="rows in TRL's shape",
        shows="KeyError: 'completions'",
        meaning="PreferenceDataset wants context and completions with ranks, and the rows have prompt, chosen and "
        "rejected.",
        handled="Both shapes are written, to different files; the configuration names the one for NeMo-RL.",
        remedy="Point data_path at the file in NeMo-RL's shape (nemo_rl_dataset writes it), or use "
        "BinaryPreferenceDataset.",
        raised=(r"^KeyError: '(completions|context|prompt|chosen|rejected)'",),
        frames=r"nemo_rl/data/",
        gotcha=9,
    ),
    KnownFailure(
        code="tied_row",
        title="two completions with the same rank",
        shows="NotImplementedError: Ties are not supported yet.",
        meaning="A row says that neither answer is better. NeMo-RL notices when it draws the row, maybe hours into a "
        "training.",
        handled=f"{_OUR_FILES} Ties are set aside with the reason `tie`.",
        remedy="Remove the rows with equal ranks, or import the file: nvtrader-rl feedback import.",
        raised=(r"^NotImplementedError: Ties are not supported yet",),
    ),
    KnownFailure(
        code="bad_row",
        title="a row that is not in the expected shape",
        shows="AssertionError: RM/DPO training supports only two completions · TypeError: can only concatenate list",
        meaning="A field is missing, null or nested otherwise, or there are more or fewer than two completions. Rows "
        "are read when they are drawn, so it may come late.",
        handled=_OUR_FILES,
        remedy="Import the file with nvtrader-rl feedback import: its report names line and field of every row that "
        "is set aside.",
        raised=(
            r"RM/DPO training supports only two completions",
            r"^(TypeError|KeyError|IndexError|AttributeError|jinja2\.exceptions\.\w+): ",
        ),
        frames=r"nemo_rl/data/(processors|llm_message_utils|datasets/(processed_dataset|preference_datasets|response_datasets))",
    ),
    KnownFailure(
        code="broken_file",
        title="a data file that cannot be parsed",
        shows="JSON parse error · DatasetGenerationError: An error occurred while generating the dataset · 'utf-8' "
        "codec can't decode byte",
        meaning="A line is cut off, has another type than the first rows, a key twice, or is not UTF-8. One such line "
        "refuses the whole file.",
        handled=_OUR_FILES,
        remedy="Import the file with nvtrader-rl feedback import, which keeps the good rows and names the bad ones.",
        raised=(
            r"JSON parse error",
            r"DatasetGenerationError|DatasetGenerationCastError",
            r"^(json\.decoder\.|orjson\.|simplejson\.errors\.)?JSONDecodeError",
            r"^UnicodeDecodeError: ",
            r"^pyarrow\.lib\.ArrowInvalid",
        ),
    ),
    KnownFailure(
        code="empty_data",
        title="a data file without rows",
        shows="StopIteration · SchemaInferenceError",
        meaning="The file is there and has no row, or every row was filtered out.",
        handled="`has_training_pairs` and preflight stop before that.",
        remedy="Import feedback first; nvtrader-rl feedback stats counts usable pairs and what was set aside.",
        raised=(r"^(datasets\.exceptions\.)?(StopIteration|SchemaInferenceError)", r"StopIteration$", r"num_samples=0"),
    ),
    KnownFailure(
        code="task_name_column",
        title="rows with a column task_name",
        shows="ValueError: The table can't have duplicated columns but columns ['task_name'] are duplicated.",
        meaning="NeMo-RL adds this column itself.",
        handled="The bridge never writes it.",
        remedy="Remove task_name from the rows.",
        raised=(r"The table can't have duplicated columns",),
    ),
    KnownFailure(
        code="data_file_missing",
        title="a data file is not there",
        shows="FileNotFoundError: Unable to find '…/train.jsonl'",
        meaning="data_path names no file. A name that does not end in .jsonl, .json, .csv, .parquet, .arrow or .txt "
        "(.jsonl.gz, .JSONL) is taken for a data set of the hub.",
        handled="Preflight opens every file.",
        remedy="Correct data_path; the ending in lower case, not compressed.",
        raised=(
            r"^FileNotFoundError: Unable to find",
            r"DataFilesNotFoundError|EmptyDatasetError",
            r"DatasetNotFoundError",
        ),
    ),
    KnownFailure(
        code="all_rows_masked",
        title="every row of a batch is too long",
        shows="KeyError: 'global_valid_toks'",
        meaning="Rows longer than max_input_seq_length are kept and masked. A DPO step with nothing but masked rows "
        "fails.",
        handled="Preflight counts the rows that are too long.",
        remedy="Raise max_sequence_tokens, or remove long rows; a larger batch makes it less likely.",
        raised=(r"^KeyError: '(global_valid_toks|global_valid_seqs)'",),
    ),
    KnownFailure(
        code="double_bos",
        title="the chat template writes the start token twice",
        shows="AssertionError: Found double BOS token in the first two positions of the message.",
        meaning="The template writes it, and the tokenizer adds it as well.",
        remedy="Set data.add_bos: false (SFT), or a chat template without the start token.",
        raised=(r"Found double BOS token",),
    ),
    KnownFailure(
        code="validation_missing",
        title="validation is asked for and there is no validation set",
        shows="AssertionError: val_dataloader is None, so sft.val_period must be <= 0 · Validation dataset is "
        "required if validation is enabled",
        meaning="SFT, GRPO, PPO and distillation stop without a validation set when val_period, val_at_start or "
        "val_at_end asks for one.",
        handled="The builders turn validation off when no row is held out.",
        remedy="Give data.validation, or set val_period: 0, val_at_start: false and val_at_end: false.",
        raised=(r"val_dataloader is None, so", r"Validation dataset is required if validation is enabled"),
    ),
    KnownFailure(
        code="refused_row",
        title="a row that the embedded trainer refuses",
        shows="DataError: train.jsonl:3: 'completions[].rank' is 0 twice",
        meaning="The message names file, line, field and what to do.",
        remedy="Do what the message says.",
        raised=(r"^(\w+\.)*DataError: ",),
    ),
)
