"""Bytes that a training needs, from the number of parameters and the shape of the model."""

from __future__ import annotations

from nvtrader_rl_dagster.nemo_rl.model_files import FLOAT32, Shape

#: Share of the weights that LoRA adapters have at most with the ranks in use (rank 8 to 64 of 1 to 8 B models).
_LORA_SHARE = 0.03


def state_bytes(
    parameters: int, *, reference: bool, lora: bool = False, megatron: bool = False, frozen: bool = False
) -> dict[str, int]:
    """Memory of weights, gradients, AdamW's two moments and the reference model, in bytes for all devices together.

    Both DTensor workers of NeMo-RL keep float32 master weights whatever `policy.precision` is
    (`dtensor_policy_worker.py` and `automodel/setup.py` of v0.6.0), so each copy takes 4 bytes for a parameter;
    gradients are reduced in float32; the reference is one more copy of the weights. Megatron-Core keeps 2 bytes for
    weights, 4 for gradients and 12 for master weights and moments: 18 together (Megatron-LM, "Distributed
    Optimizer"). frozen: weights only, for a teacher.
    """
    trained = int(parameters * _LORA_SHARE) if lora else parameters
    weights, moments = (2, 12) if megatron else (FLOAT32, 2 * FLOAT32)
    parts = {"weights": weights * parameters}
    if not frozen:
        parts |= {"gradients": FLOAT32 * trained, "optimizer": moments * trained}
    if reference:
        parts["reference"] = weights * parameters
    return parts


def activation_bytes(shape: Shape, sequences: int, tokens: int, *, half: bool, checkpointing: bool) -> int:
    """Memory of the activations of one micro batch, in bytes.

    34 s b h bytes for each layer at 16 bits, without the attention scores, which fused attention does not keep
    (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", equation 2); 2 s b h
    when only each layer's input is kept (table 2). Twice that in float32. On top the logits, their log-softmax and
    its gradient in float32: 12 s b v.
    """
    for_each = 2 if checkpointing else 34
    layers = for_each * shape.layers * sequences * tokens * shape.hidden * (1 if half else 2)
    return layers + 3 * FLOAT32 * sequences * tokens * shape.vocabulary


def checkpoint_bytes(parameters: int, *, optimizer: bool, consolidated: bool, lora: bool = False) -> int:
    """Bytes of one checkpoint: float32 weights, once more as a Hugging Face folder, and AdamW's two moments."""
    trained = int(parameters * _LORA_SHARE) if lora else parameters
    return FLOAT32 * trained * (1 + consolidated + 2 * optimizer)
