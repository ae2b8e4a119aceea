"""A checkpoint as NeMo-RL's workers save it, with weights unlike the base model's.

    python checkpoint_maker.py KIND BASE STEP

KIND: dcp (the v1 worker; NeMo-RL's own writer, in its interpreter), safetensors (the v2 worker on two ranks, with the
writer of torch that v2's is made after). BASE: folder of the base model. STEP: the checkpoint folder, whose config.yaml
is there. What the exported model must hold is written to STEP/expected.pt.
"""

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
import yaml
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer


def trained_model(policy, base):
    """As a worker loads it (float32, overrides, one label), with every weight moved."""
    changes = policy.get("hf_config_overrides") or {}
    kind = AutoModelForCausalLM
    if policy.get("reward_model_cfg", {}).get("enabled"):
        kind, changes = AutoModelForSequenceClassification, {**changes, "num_labels": 1}
    model = kind.from_pretrained(base, dtype=torch.float32, **changes)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    return model


def save_dcp(model, step):
    from nemo_rl.utils.native_checkpoint import save_checkpoint

    save_checkpoint(model, str(step / "policy/weights"))


def save_shards(rank, model, folder, port):
    """One of two ranks, each with its rows of every matrix."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    store = torch.distributed.TCPStore("127.0.0.1", port, 2, rank == 0)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    state = get_model_state_dict(model)
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight")
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(folder, save_distributed=True))
    torch.distributed.destroy_process_group()


def main():
    kind, base, step = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    policy = yaml.safe_load((step / "config.yaml").read_text())["policy"]
    model = trained_model(policy, base)
    folder = step / "policy/weights/model"
    if kind == "dcp":
        save_dcp(model, step)
    else:
        folder.mkdir(parents=True)
        port = torch.distributed.TCPStore("127.0.0.1", 0, 1, True).port
        torch.multiprocessing.spawn(save_shards, (model, str(folder), port), nprocs=2)
    tokenizer = AutoTokenizer.from_pretrained(base)
    # Training may change the tokenizer; its checkpoint then differs from the base model's.
    tokenizer.chat_template = "{{ messages[0]['content'] }} of the checkpoint"
    tokenizer.save_pretrained(step / "policy/tokenizer")
    torch.save(model.state_dict(), step / "expected.pt")


if __name__ == "__main__":
    main()
