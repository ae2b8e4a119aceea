"""On the test's path only: a stand-in for vLLM, put into NeMo-RL's modules when they are imported.

Answers are sampled from the model's folder; the weights of a refit go nowhere, but its buffer is sized as always.
Then the `sitecustomize` that this one hides is loaded.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_GENERATES = ("nemo_rl.algorithms.grpo", "nemo_rl.algorithms.distillation")
_TRAINS = "nemo_rl.models.policy.lm_policy"


class _Finder:
    def find_spec(self, fullname, path, target=None):
        if fullname not in (*_GENERATES, _TRAINS):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            if fullname == _TRAINS:
                module.Policy.stream_weights_via_ipc_zmq = lambda self, *_, **__: []
            else:
                module.VllmGeneration = stand_in()

        spec.loader.exec_module = exec_module
        return spec


def stand_in():
    import torch
    from nemo_rl.distributed.batched_data_dict import BatchedDataDict

    class Generation:
        """NeMo-RL's generation interface on a model in this process."""

        requires_kv_scale_sync = False

        def __init__(self, cluster=None, config=None, **_):
            from transformers import AutoModelForCausalLM

            self.cfg = config
            self._model = AutoModelForCausalLM.from_pretrained(config["model_name"], dtype=torch.float32).eval()

        @torch.no_grad()
        def generate(self, data, greedy=False):
            ids, lengths = data["input_ids"], data["input_lengths"]
            answers = [self._sample(ids[i, : int(lengths[i])], greedy) for i in range(len(ids))]
            total = lengths + torch.tensor([len(tokens) for tokens, _ in answers])
            out = torch.full((len(ids), int(total.max())), self.cfg["_pad_token_id"], dtype=torch.long)
            logprobs = torch.zeros(out.shape)
            for i, (tokens, values) in enumerate(answers):
                start, end = int(lengths[i]), int(total[i])
                out[i, :start], out[i, start:end] = ids[i, :start], torch.tensor(tokens)
                logprobs[i, start:end] = torch.tensor(values)
            return BatchedDataDict(
                {
                    "output_ids": out,
                    "generation_lengths": total - lengths,
                    "unpadded_sequence_lengths": total,
                    "logprobs": logprobs,
                    "truncated": torch.zeros(len(ids), dtype=torch.bool),
                }
            )

        def _sample(self, prompt, greedy):
            """Of a random length, so that answers differ in what rewards see."""
            most = int(self.cfg["max_new_tokens"])
            wanted = most if greedy else int(torch.randint(1, most + 1, (1,)))
            tokens, values = [], []
            for _ in range(wanted):
                context = torch.cat([prompt, torch.tensor(tokens, dtype=torch.long)])
                row = torch.log_softmax(self._model(context[None]).logits[0, -1].float(), -1)
                token = int(row.argmax() if greedy else torch.multinomial(row.exp(), 1))
                tokens.append(token)
                values.append(float(row[token]))
            return tokens, values

        def _nothing(self, *_, **__):
            return True

        finish_generation = prepare_for_generation = prepare_refit_info = shutdown = invalidate_kv_cache = _nothing
        clear_logger_metrics = snapshot_step_metrics = _nothing

        def update_weights_via_ipc_zmq(self):
            return []

        def get_logger_metrics(self):
            return {}

        get_step_metrics = get_logger_metrics

    return Generation


def _load_the_hidden_one():
    entries = [Path(entry).resolve() for entry in sys.path]
    behind = sys.path[entries.index(_HERE) + 1 :] if _HERE in entries else []
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_load_the_hidden_one()
