"""`generation`: vLLM on the devices that train, sized for unified memory."""

from __future__ import annotations

from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs.target import Target


def generation_section(
    target: Target,
    *,
    max_new_tokens: int,
    max_model_len: int,
    temperature: float,
    gpu_memory_utilization: float,
    tensor_parallel: int,
) -> dict[str, Any]:
    """vLLM in the synchronous engine, without compiled graphs, which would take memory and minutes at each start."""
    vllm: dict[str, Any] = {
        "async_engine": False,
        "precision": target.precision,
        "kv_cache_dtype": "auto",
        "tensor_parallel_size": tensor_parallel,
        "pipeline_parallel_size": 1,
        "expert_parallel_size": 1,
        "gpu_memory_utilization": gpu_memory_utilization,
        "max_model_len": max_model_len,
        "enforce_eager": True,
    }
    section: dict[str, Any] = {
        "backend": "vllm",
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": None,
        "stop_token_ids": None,
        "stop_strings": None,
        "vllm_cfg": vllm,
        "vllm_kwargs": {},
        "colocated": {"enabled": True, "resources": {"gpus_per_node": None, "num_nodes": None}},
    }
    if target.version == "0.7.0":
        vllm["use_tqdm"] = False
        section |= {"port_range_low": 11001, "port_range_high": 15000}
    return section
