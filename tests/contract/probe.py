"""Runs inside NeMo-RL's interpreter, in its tree: puts a YAML of ours through NeMo-RL's own loaders. Prints JSON.

    python probe.py CONFIG

Keys of the answer: missing (what the tree's own types find wrong), sets (rows of each data set, and how many of those
take part in the loss), tokens (of the first row's message log, by role), batch (shape of a collated one),
equal_policies (the DPO loss of a policy on itself).
"""

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

MODULES = {
    "sft": "nemo_rl.algorithms.sft",
    "dpo": "nemo_rl.algorithms.dpo",
    "rm": "nemo_rl.algorithms.rm",
    "grpo": "nemo_rl.algorithms.grpo",
    "ppo": "nemo_rl.algorithms.ppo",
    "distillation": "nemo_rl.algorithms.distillation",
    "eval": "nemo_rl.evals.eval",
}


def load(path, section):
    """As the run script does it; only some scripts register the resolvers."""
    from omegaconf import OmegaConf

    config = importlib.import_module("nemo_rl.utils.config")
    if section in ("sft", "grpo", "ppo", "distillation"):
        config.register_omegaconf_resolvers()
    loaded = OmegaConf.load(path) if section == "eval" else config.load_config(path)
    return OmegaConf.to_container(loaded, resolve=True)


def missing(config, section):
    """Dotted keys that the tree's MasterConfig lacks or finds of the wrong type."""
    import pydantic

    kind = importlib.import_module(MODULES[section]).MasterConfig
    try:
        if issubclass(kind, pydantic.BaseModel):
            kind(**config)
        else:
            pydantic.TypeAdapter(kind).validate_python(config)
    except pydantic.ValidationError as error:
        return sorted({_dotted(e) for e in error.errors() if _applies(config, e)})
    return []


def _dotted(error):
    path = ".".join(p for p in map(str, error["loc"]) if not _is_type(p))
    return f"{path}: {error['type']}"


def _is_type(part):
    """Members of a union stand in an error's location by their type's name."""
    return bool(re.match(r"[A-Z]\w+$|list\[|dict\[|function-", part)) or part in ("int", "str", "float", "bool")


def _applies(config, error):
    """A union of an enabled and a disabled section reports both; only one is meant."""
    section = config
    for part in map(str, error["loc"]):
        if not _is_type(part):
            section = section.get(part) if isinstance(section, dict) else None
        elif isinstance(section, dict) and "enabled" in section:
            if part.endswith("Disabled") and section["enabled"]:
                return False
            if not part.endswith("Disabled") and part.endswith("Config") and not section["enabled"]:
                return False
    return True


def data_sets(config, section):
    from nemo_rl.algorithms.utils import get_tokenizer

    if section == "eval":
        tokenizer = get_tokenizer(config["tokenizer"])
        sets = importlib.import_module("nemo_rl.data.datasets")
        base = sets.load_eval_dataset(config["data"])
        return tokenizer, {
            "eval": sets.AllTaskProcessedDataset(
                dataset=base.rekeyed_ds,
                tokenizer=tokenizer,
                default_task_data_spec=base.task_spec,
                task_data_processors=base.processor,
                max_seq_length=config["data"]["max_input_seq_length"],
            )
        }
    tokenizer = get_tokenizer(config["policy"]["tokenizer"])
    if section in ("dpo", "rm"):
        train, validation = importlib.import_module("nemo_rl.data.utils").setup_preference_data(
            tokenizer, config["data"]
        )
    elif section == "sft":
        train, validation = _script("run_sft.py").setup_data(tokenizer, config["data"])
    else:
        train, validation = importlib.import_module("nemo_rl.data.utils").setup_response_data(
            tokenizer, config["data"], None
        )
    found = {"train": train} if not isinstance(train, dict) else {f"train-{k}": v for k, v in train.items()}
    if isinstance(validation, dict):
        found.update({f"validation-{k}": v for k, v in validation.items()})
    elif validation is not None:
        found["validation"] = validation
    return tokenizer, found


def _script(name):
    spec = importlib.util.spec_from_file_location("run_script", Path("examples") / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def collate(config, section, tokenizer, items):
    functions = importlib.import_module("nemo_rl.data.collate_fn")
    if section in ("dpo", "rm"):
        divisor = int(config["policy"]["make_sequence_length_divisible_by"])
        return list(functions.preference_collate_fn(items, tokenizer, divisor, section == "dpo")["input_ids"].shape)
    return [len(functions.rl_collate_fn(items)["message_log"])]


def equal_policies(config):
    """The tree's DPO loss where policy and reference give every token the same probability."""
    import torch

    losses = importlib.import_module("nemo_rl.algorithms.loss.loss_functions")
    batches = importlib.import_module("nemo_rl.distributed.batched_data_dict")
    kind = importlib.import_module(MODULES["dpo"]).MasterConfig
    settings = kind(**config).dpo if isinstance(kind, type) and not issubclass(kind, dict) else config["dpo"]
    torch.manual_seed(0)
    pairs, length = 4, 9
    logprobs = -torch.rand(2 * pairs, length)
    data = batches.BatchedDataDict(
        {
            "input_ids": torch.randint(0, 50, (2 * pairs, length + 1)),
            "reference_policy_logprobs": torch.cat([logprobs, torch.zeros(2 * pairs, 1)], 1),
            "token_mask": torch.ones(2 * pairs, length + 1),
            "sample_mask": torch.ones(2 * pairs),
        }
    )
    function = losses.DPOLossFn(settings)
    count = torch.tensor(float(2 * pairs))
    loss, _ = function(next_token_logprobs=logprobs, data=data, global_valid_seqs=count, global_valid_toks=None)
    return float(loss)


def main(path):
    from omegaconf import OmegaConf

    names = OmegaConf.load(path)
    section = next(section for section in MODULES if section in names)
    config = load(path, section)
    answer = {"section": section, "missing": missing(config, section)}
    tokenizer, sets = data_sets(config, section)
    answer["sets"] = {}
    for name, rows in sets.items():
        items = [rows[i] for i in range(len(rows))]
        live = sum(bool(item.get("loss_multiplier", 1.0)) for item in items)
        answer["sets"][name] = {"rows": len(items), "live": live}
        if "batch" not in answer:
            if section != "eval":
                answer["batch"] = collate(config, section, tokenizer, items[:2])
            log = items[0].get("message_log") or items[0]["message_log_chosen"]
            answer["tokens"] = [[message["role"], len(message["token_ids"])] for message in log]
    if section == "dpo":
        answer["equal_policies"] = equal_policies(config)
    print("ANSWER " + json.dumps(answer))


main(*sys.argv[1:])
