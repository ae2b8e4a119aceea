"""What a user brings: a reward by its dotted path, and an environment by `class_path`. Runs in NeMo-RL's Python."""

import json


def tells_the_topic(prompt, response, ground_truth):
    """1 when a word of the question is in the answer; it must be given the question itself and the row's output."""
    assert [message["role"] for message in prompt] == ["user"] and "<|" not in prompt[0]["content"], prompt
    assert json.loads(ground_truth)["facts"] == ["2 percent"], ground_truth
    return float(any(word in response for word in prompt[0]["content"].lower().split()))


def even_letters(prompt, response, ground_truth):
    """Share of letters at even places of the alphabet: varies with every answer, and says nothing about it."""
    letters = [letter for letter in response.lower() if "a" <= letter <= "z"]
    return sum(ord(letter) % 2 for letter in letters) / len(letters) if letters else 0.0


class DeskEnvironment:
    """Found by its path; never started here."""
