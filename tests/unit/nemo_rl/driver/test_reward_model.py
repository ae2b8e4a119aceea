"""Scores of an exported reward model: in 0..1, and the same in any batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nvtrader_rl_dagster.nemo_rl.driver.reward_model import RewardModel

torch = pytest.importorskip("torch")
TEMPLATE = "{% for m in messages %}{{ '<s>' + m['role'] + ': ' + m['content'] + '</s>\n' }}{% endfor %}"
WORDS = ["user:", "assistant:", "gold", "rose", "fell", "why", "supply", "risk"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of one layer over a vocabulary of words, with one output and its padding token unsaid."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

    out = tmp_path_factory.mktemp("rm")
    vocabulary = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(out)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(vocabulary), num_labels=1, max_position_embeddings=32, **sizes)
    model = LlamaForSequenceClassification(config)
    torch.nn.init.normal_(model.score.weight, std=0.3)
    model.save_pretrained(out)
    return out


def conversation(answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "why gold"}, {"role": "assistant", "content": answer}]


ANSWERS = ["rose", "gold fell", "supply supply risk", "supply", "gold rose supply fell risk why"]


def test_an_answer_has_the_same_score_in_every_batch(folder: Path) -> None:
    conversations = [conversation(answer) for answer in ANSWERS]
    together = RewardModel(folder, "cpu", batch_size=4).scores(conversations)
    alone = [RewardModel(folder, "cpu").scores([one])[0] for one in conversations]
    assert together == pytest.approx(alone, abs=1e-5)
    assert all(0 < score < 1 for score in together) and len({round(score, 3) for score in together}) == len(ANSWERS)


def test_the_score_is_that_of_the_last_token_of_the_rendered_conversation(folder: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1).eval()
    text = "<s>user: why gold</s>\n<s>assistant: gold rose</s>\n"
    ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        # The end of text is the padding token here, so the model reads the score one token before it, as in training.
        score = torch.sigmoid(model.score(model.model(ids).last_hidden_state[0]))[:, 0]
    found = RewardModel(folder, "cpu").scores([conversation("gold rose")])
    assert found[0] == pytest.approx(float(score[-2]), abs=1e-5)


def test_of_a_conversation_that_is_too_long_the_answer_is_kept(folder: Path) -> None:
    model = RewardModel(folder, "cpu")
    long = [{"role": "user", "content": "why gold " * 40}, {"role": "assistant", "content": "rose"}]
    other = [{"role": "user", "content": "why gold " * 50}, {"role": "assistant", "content": "rose"}]
    third = [{"role": "user", "content": "why gold " * 50}, {"role": "assistant", "content": "supply risk"}]
    same, as_same, different = model.scores([long, other, third])
    assert same == pytest.approx(as_same, abs=1e-5) and abs(same - different) > 1e-3


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"reward_model": "/nowhere"}, "env.nvtrader.reward_model: /nowhere is no Hugging Face folder"),
        ({"reward_model": "{folder}", "reward_model_device": "gpu"}, "'gpu' must be one of auto, cpu, cuda"),
        ({"reward_model": "{folder}", "reward_model_device": "cuda"}, "is cuda, but torch sees no GPU"),
    ],
)
def test_a_configuration_that_cannot_score_says_which_key(
    config: dict[str, Any], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    config = {name: str(value).replace("{folder}", str(folder)) for name, value in config.items()}
    with pytest.raises(ValueError, match=said):
        RewardModel.from_config(config)


@pytest.mark.parametrize("noted", ["0,1", None])
def test_the_gpus_that_ray_hides_from_an_actor_are_looked_at_again(
    noted: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    if noted is not None:
        monkeypatch.setenv("NVTRADER_CUDA_VISIBLE_DEVICES", noted)
    RewardModel(folder, "cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "", "a model on the CPU needs none"
    RewardModel(folder, "auto")
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == noted


def test_a_center_far_from_the_scores_is_said_once_and_the_right_one_spreads_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conversations = [conversation(answer) for answer in ANSWERS]
    far = RewardModel(folder, "cpu", center=-30.0)
    assert max(far.scores(conversations)) - min(far.scores(conversations)) < 1e-6
    said = [line for line in capsys.readouterr().out.splitlines() if "set env.nvtrader.reward_model_center" in line]
    assert len(said) == 1
    center = float(said[0].rsplit(" ", 1)[1])
    scores = RewardModel.from_config({"reward_model": str(folder), "reward_model_center": center}).scores(conversations)
    assert max(scores) - min(scores) > 0.01 and "set env" not in capsys.readouterr().out
