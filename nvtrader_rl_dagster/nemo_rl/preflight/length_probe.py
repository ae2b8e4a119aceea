"""Runs in the trainer's interpreter: counts tokens of conversations as NeMo-RL's processors do.

Argument: a JSON file {"tokenizer": {"name", …}, "seconds", "sets": [{"file", "limit", "at_limit", "add_bos", "add_eos",
"generation_prompt", "prompt", "system", "rl"}]}; each line of a set's file holds the conversations of one row.
Prints one JSON object: {"sets": [{"rows", "too_long", "longest"}], "complete"} or {"error"}.

Counted as `get_formatted_message_log` and the processors of NeMo-RL count (v0.6.0, `nemo_rl/data`): the template is
rendered up to each message, and what a message adds is tokenized by itself.
"""

import importlib.util
import json
import sys
import time
from typing import Any


def hide_torch() -> None:
    """Let transformers believe that there is no torch: importing it takes seconds, and tokenizers need none of it."""
    find = importlib.util.find_spec

    def without_torch(name: str, *rest: Any) -> Any:
        return None if name.split(".")[0] in ("torch", "torchvision", "torchaudio") else find(name, *rest)

    importlib.util.find_spec = without_torch  # type: ignore[assignment]


def load(settings: dict[str, Any]) -> Any:
    """The tokenizer with the chat template that the configuration asks for."""
    hide_torch()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(settings["name"], trust_remote_code=True)
    if "chat_template" in settings:
        template = settings["chat_template"]
        if template is None:
            tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
        elif template.endswith(".jinja"):
            with open(template, encoding="utf-8") as file:  # noqa: PTH123  the interpreter may be any
                tokenizer.chat_template = file.read()
        elif template.lower() != "default":
            tokenizer.chat_template = template
    return tokenizer


def tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def common_length(first: str, second: str) -> int:
    """Characters that two texts have in common from their start."""
    if second.startswith(first):
        return len(first)
    shorter = min(len(first), len(second))
    return next((i for i in range(shorter) if first[i] != second[i]), shorter)


def of_prompt(tokenizer: Any, messages: list[dict[str, Any]], options: dict[str, Any], more: dict[str, Any]) -> int:
    """A prompt of RL: an optional system turn, one user turn, and the start of the answer."""
    asked = messages[-1]["content"]
    if options["prompt"]:
        asked = options["prompt"].format(asked)
    turns = [{"role": "system", "content": options["system"]}] if options["system"] else []
    turns.append({"role": "user", "content": asked})
    text = tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=True, add_special_tokens=False, **more
    )
    return tokens(tokenizer, text)


def of_conversation(
    tokenizer: Any, messages: list[dict[str, Any]], options: dict[str, Any], more: dict[str, Any]
) -> int:
    """A conversation of SFT or of one side of a pair."""
    if options["prompt"]:
        first = next((i for i, message in enumerate(messages) if message["role"] == "user"), 0)
        asked = {"role": "user", "content": options["prompt"].format(messages[first]["content"])}
        messages = [*messages[:first], asked, *messages[first + 1 :]]
    total, before = 0, ""
    for index, message in enumerate(messages):
        text = tokenizer.apply_chat_template(
            messages[: index + 1],
            tokenize=False,
            add_special_tokens=False,
            add_generation_prompt=options["generation_prompt"] and message["role"] in ("user", "tool"),
            **more,
        )
        added = text[common_length(before, text) :]
        if index == 0 and options["add_bos"] and tokenizer.bos_token and not added.startswith(tokenizer.bos_token):
            added = tokenizer.bos_token + added
        last = index == len(messages) - 1
        if last and options["add_eos"] and tokenizer.eos_token and not added.rstrip("\n").endswith(tokenizer.eos_token):
            added += tokenizer.eos_token
        total += tokens(tokenizer, added)
        before = text
    return total


def count(tokenizer: Any, task: dict[str, Any], deadline: float) -> dict[str, Any]:
    more = task["tokenizer"].get("chat_template_kwargs") or {}
    counted, complete = [], True
    for options in task["sets"]:
        rows = too_long = longest = 0
        of = of_prompt if options["rl"] else of_conversation
        with open(options["file"], encoding="utf-8") as file:  # noqa: PTH123
            for line in file:
                if time.monotonic() > deadline:
                    complete = False
                    break
                length = max(of(tokenizer, side, options, more) for side in json.loads(line))
                rows += 1
                longest = max(longest, length)
                too_long += length > options["limit"] or (options["at_limit"] and length == options["limit"])
        counted.append({"rows": rows, "too_long": too_long, "longest": longest})
    return {"sets": counted, "complete": complete}


def main() -> None:
    started = time.monotonic()
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        task = json.load(file)
    said, sys.stdout = sys.stdout, sys.stderr
    try:
        answer = count(load(task["tokenizer"]), task, started + task["seconds"])
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:500]}
    print(json.dumps(answer), file=said)


if __name__ == "__main__":
    main()
