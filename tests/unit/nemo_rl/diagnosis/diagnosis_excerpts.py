"""Short excerpts of failing logs, one or more for each known failure, in the format of the real message.

Where a message comes from stands beside it: `ran` is what the named package printed when it was made to fail here
(Ray 2.54.0, torch 2.13.0, transformers 5.3.0, datasets 5.2.0, NeMo-RL v0.6.0 on a CPU), a file name is where its text
stands in the source, and a link or project is where such a log was published.
"""

from __future__ import annotations

TREE = "/opt/nemo-rl"


def raised(error: str, *frames: str) -> str:
    """A driver's traceback. A frame is `file:function:code`, below the tree."""
    shown = []
    for frame in (f"examples/run_dpo.py:main:setup(config)", *frames):  # noqa: F541
        file, function, code = frame.split(":", 2)
        shown += [f'  File "{TREE}/{file}", line 7, in {function}', f"    {code}"]
    return "\n".join(["Traceback (most recent call last):", *shown, error])


def in_worker(error: str, *frames: str, worker: str = "DTensorPolicyWorker.train") -> str:
    """How `ray.get` shows in the driver what a worker raised (ran)."""
    name = error.partition(":")[0].rpartition(".")[2]
    where = f"\x1b[36mray::{worker}()\x1b[39m (pid=31791, ip=192.0.2.2, actor_id=9a90067c8e99af76d81b3b31)"
    inner = "\n".join(f'  File "{TREE}/{frame}", line 7, in train' for frame in frames or ("nemo_rl/x.py",))
    return raised(f"ray.exceptions.RayTaskError({name}): {where}\n{inner}\n{error}")


def from_worker(text: str, source: str = "DTensorPolicyWorker pid=1109", colour: str = "36") -> str:
    """Lines that a worker printed, as Ray hands them on (ran)."""
    return "\n".join(f"\x1b[{colour}m({source})\x1b[0m {line}" for line in text.split("\n"))


RAYLET = {"source": "raylet", "colour": "33"}
PROCESSORS = "nemo_rl/data/processors.py:preference_preprocessor:datum_dict"

#: Code, and a log that must get it.
EXCERPTS: list[tuple[str, str]] = [
    # ran
    ("torch_cpu", in_worker("AssertionError: Torch not compiled with CUDA enabled")),
    # torch/distributed/distributed_c10d.py
    ("torch_cpu", in_worker("RuntimeError: Distributed package doesn't have NCCL built in")),
    # the range: pytorch issue 172629; the error: CUDA's message of cudaErrorNoKernelImageForDevice
    (
        "cuda_capability",
        from_worker(
            "/opt/venv/lib/python3.13/site-packages/torch/cuda/__init__.py:283: UserWarning: \n"
            "    Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.\n"
            "    Minimum and Maximum cuda capability supported by this version of PyTorch is\n"
            "    (8.0) - (12.0)"
        )
        + "\n"
        + in_worker("torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"),
    ),
    # vLLM's troubleshooting guide
    (
        "cuda_capability",
        from_worker(
            "(EngineCore_0 pid=9492) ERROR 09-18 04:30:01 [core.py:700] Traceback (most recent call last):\n"
            '(EngineCore_0 pid=9492) ERROR 09-18 04:30:01 [core.py:700]   File "core.py", line 691, in run_core\n'
            "(EngineCore_0 pid=9492) ERROR 09-18 04:30:01 [core.py:700] triton.runtime.errors.PTXASError: PTXAS error\n"
            "(EngineCore_0 pid=9492) ERROR 09-18 04:30:01 [core.py:700] `ptxas` stderr:\n"
            "(EngineCore_0 pid=9492) ERROR 09-18 04:30:01 [core.py:700] ptxas fatal   : Value 'sm_121a' is not defined "
            "for option 'gpu-name'",
            "VllmGenerationWorker pid=9",
        )
        + "\n"
        + in_worker("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
    ),
    # uv's `no_interpreter` snapshot tests; the command is NeMo-RL's nemo_rl/utils/venvs.py
    (
        "uv_no_interpreter",
        from_worker(
            "error: No interpreter found for Python 3.13.13 in managed installations\n"
            "hint: Python downloads are set to 'never'",
            "_env_builder pid=1708",
        )
        + "\n"
        + in_worker(
            "subprocess.CalledProcessError: Command '['uv', 'venv', '--allow-existing', '/opt/nemo-rl/venvs/x']' "
            "returned non-zero exit status 2.",
            "nemo_rl/utils/venvs.py",
            worker="_env_builder",
        ),
    ),
    # uv issue `repo with tool.uv.sources`; uv breaks the line
    (
        "workspace_member",
        from_worker(
            "  × Failed to build `nemo-rl @ file:///opt/nemo-rl`\n"
            "  ├─▶ Failed to parse entry: `nemo-gym`\n"
            "  ╰─▶ `nemo-gym` references a workspace in `tool.uv.sources` (e.g., `nemo-gym = {\n"
            "      workspace = true }`), but is not a workspace member",
            "_env_builder pid=1708",
        )
        + "\n"
        + in_worker(
            "subprocess.CalledProcessError: Command '['uv', 'sync', '--directory', '/opt/nemo-rl']' returned non-zero "
            "exit status 1.",
            "nemo_rl/utils/venvs.py",
        ),
    ),
    # ran, with an interpreter without packages as the worker's
    (
        "empty_worker_venv",
        from_worker(
            "Traceback (most recent call last):\n"
            '  File "/opt/venv/site-packages/ray/_private/workers/default_worker.py", line 8, in <module>\n'
            "    import ray\n"
            "ModuleNotFoundError: No module named 'ray'",
            **RAYLET,
        )
        + "\n"
        + raised("ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready."),
    ),
    # nemo_rl/models/generation/vllm/vllm_worker.py
    (
        "empty_worker_venv",
        in_worker(
            "ImportError: vLLM is not installed. Please check that the py_executable in the runtime_env of "
            "VllmGenerationWorker covers the vllm dependency.",
            worker="VllmGenerationWorker.__init__",
        ),
    ),
    # ran
    ("uv_missing", in_worker("FileNotFoundError: [Errno 2] No such file or directory: 'uv'", worker="_env_builder")),
    # uv's crates/uv/src/commands/project/lock.rs, as printed in its snapshot tests
    (
        "lock_outdated",
        from_worker(
            "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided.", "_env_builder pid=3"
        )
        + "\n"
        + in_worker(
            "subprocess.CalledProcessError: Command '['uv', 'run', '--locked', 'echo']' returned exit status 2."
        ),
    ),
    # torch/utils/cpp_extension.py; nemo_rl/models/policy/lm_policy.py
    (
        "cuda_toolkit_missing",
        raised("RuntimeError: TORCH_CUDA_ARCH_LIST is not set. This is required in Megatron backend."),
    ),
    (
        "cuda_toolkit_missing",
        from_worker(
            "  × Failed to build `flash-attn==2.8.1`\n"
            "  ├─▶ The build backend returned an error\n"
            "  ╰─▶ Call to `setuptools.build_meta:__legacy__.build_wheel` failed (exit status: 1)\n"
            "\n"
            "      [stderr]\n"
            "      OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
            "_env_builder pid=3",
        )
        + "\n"
        + in_worker("subprocess.CalledProcessError: Command '['uv', 'sync']' returned non-zero exit status 1."),
    ),
    # flash-attention issue 1736
    (
        "worker_venv_build",
        from_worker(
            "  × Failed to build `flash-attn==2.8.1`\n  ├─▶ The build backend returned an error", "_env_builder pid=3"
        )
        + "\n"
        + in_worker("subprocess.CalledProcessError: Command '['uv', 'sync']' returned non-zero exit status 1."),
    ),
    # ran: the tree without its submodules
    (
        "megatron_missing",
        raised("ModuleNotFoundError: No module named 'megatron'", "nemo_rl/x.py:<module>:import megatron.core"),
    ),
    ("package_missing", raised("ModuleNotFoundError: No module named 'nemo_rl.algorithms'")),
    # ran; torch/csrc/cuda
    (
        "gpu_driver",
        raised("pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found")
        + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + raised("RuntimeError: Failed to initialize NVML: NVML Shared Library Not Found"),
    ),
    (
        "gpu_driver",
        in_worker("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"),
    ),
    # NVIDIA-NeMo/RL run logs; cpython's Modules/_posixsubprocess.c
    (
        "python_finalization",
        "Exception ignored in: <function Policy.__del__ at 0xfffdd89cb2e0>\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/nemo-rl/nemo_rl/models/policy/lm_policy.py", line 100, in __del__\n'
        "PythonFinalizationError: preexec_fn not supported at interpreter shutdown",
    ),
    # ran
    (
        "helpsteer3_download",
        raised("ConnectionError: Couldn't reach 'nvidia/HelpSteer3' on the Hub (OfflineModeIsEnabled)"),
    ),
    ("trl_rows", raised("KeyError: 'completions'", PROCESSORS)),
    ("trl_rows", raised("KeyError: 'context'", PROCESSORS)),
    # torch/_utils.py, ExceptionWrapper
    (
        "trl_rows",
        raised(
            "KeyError: Caught KeyError in DataLoader worker process 0.\n"
            "Original Traceback (most recent call last):\n"
            f'  File "{TREE}/nemo_rl/data/processors.py", line 249, in preference_preprocessor\n'
            "    assert len(datum_dict['completions']) == 2, (\n"
            "KeyError: 'completions'"
        ),
    ),
    # ran
    (
        "tied_row",
        raised("NotImplementedError: Ties are not supported yet. You can use the following command", PROCESSORS),
    ),
    ("bad_row", raised("AssertionError: RM/DPO training supports only two completions", PROCESSORS)),
    ("bad_row", raised("TypeError: unsupported operand type(s) for +: 'NoneType' and 'list'", PROCESSORS)),
    (
        "broken_file",
        raised("pyarrow.lib.ArrowInvalid: JSON parse error: Invalid encoding in string. in row 1")
        + "\n\nThe above exception was the direct cause of the following exception:\n\n"
        + raised("datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset"),
    ),
    ("empty_data", raised("StopIteration", "nemo_rl/data/datasets/utils.py:load_dataset_from_path:load_dataset(path)")),
    (
        "task_name_column",
        raised("ValueError: The table can't have duplicated columns but columns ['task_name'] are duplicated."),
    ),
    ("data_file_missing", raised("FileNotFoundError: Unable to find '/data/train.jsonl'")),
    # ran (facts, section 2)
    (
        "all_rows_masked",
        raised("KeyError: 'global_valid_toks'", 'nemo_rl/algorithms/dpo.py:dpo_train:metrics["global_valid_toks"]'),
    ),
    # nemo_rl/data/datasets/utils.py, nemo_rl/algorithms/{sft,grpo}.py
    ("double_bos", raised("AssertionError: Found double BOS token in the first two positions of the message.")),
    ("validation_missing", raised("AssertionError: val_dataloader is None, so sft.val_period must be <= 0")),
    # ours
    (
        "refused_row",
        raised("nvtrader_rl_dagster.local_trainer.preference_data.DataError: train.jsonl:3: 'rank' is 0 twice"),
    ),
    # ran on a full disk (tests/process/test_disk_full.py); ray/exceptions.py
    ("disk_full", raised("OSError: [Errno 28] No space left on device: '/out/tmp_step_2'")),
    ("disk_full", in_worker("RuntimeError: [enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0")),
    # vllm/v1/worker/gpu_worker.py and kv_cache_utils.py
    (
        "vllm_memory",
        in_worker(
            "ValueError: Free memory on device cuda:0 (2.6/121.63 GiB) on startup is less than desired GPU memory "
            "utilization (0.5, 60.8 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        ),
    ),
    (
        "vllm_memory",
        in_worker("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ),
    # torch
    (
        "gpu_out_of_memory",
        in_worker("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total"),
    ),
    # ran, with RAY_memory_usage_threshold=0.02
    (
        "out_of_memory",
        raised(
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
            "Memory on the node (IP: 192.0.2.2) was 115.65GB / 121.69GB (0.950369), which exceeds the memory usage "
            "threshold of 0.95. Ray killed this worker because it was the most recently scheduled task"
        ),
    ),
    # WM-PO issue 3
    (
        "out_of_memory",
        from_worker(
            "[2026-12-07 09:57:19,206 E 3934 3934] (raylet) node_manager.cc:3277: 2 Workers (tasks / actors) killed "
            "due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 8289, IP: 192.0.2.2)",
            **RAYLET,
        )
        + "\n"
        + raised("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."),
    ),
    # ran: the worker's lines come after the driver's
    (
        "shared_memory",
        raised("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.")
        + "\n"
        + from_worker("*** SIGBUS received at time=1796063016 on cpu 1 ***\nFatal Python error: Bus error"),
    ),
    # torch/csrc/DataLoader.cpp
    (
        "shared_memory",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
        + raised(
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's "
            "workers are out of shared memory. Please try to raise your shared memory limit."
        ),
    ),
    # ran: an address without a cluster
    (
        "ray_gcs_timeout",
        "[2026-11-30 18:24:22,096 W 2521 2521] rpc_client.h:153: Failed to connect to GCS at address 192.0.2.2:6399 "
        "within 5 seconds.",
    ),
    # ray/_private/node.py, services.py, utils.py
    ("ray_gcs_timeout", raised("RuntimeError: Failed to start GCS.  Last 2 lines of error files:")),
    (
        "ray_start",
        raised("Exception: The current node timed out during startup. This could happen because some of the raylet"),
    ),
    (
        "ray_start",
        raised("OSError: validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /home/x"),
    ),
    (
        "ray_attach",
        raised("RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.54.0\n    Python: 3.13.13"),
    ),
    # nemo_rl/distributed/virtual_cluster.py
    (
        "placement",
        "Not enough GPUs available. Requested 2 GPUs, but only 1 are available in the cluster.\n"
        "Retrying placement group creation... 6/6. Next retry in 32 seconds.\n"
        + raised(
            "nemo_rl.distributed.virtual_cluster.ResourceInsufficientError: Maximum number of retries reached (6)."
        ),
    ),
    (
        "placement_timeout",
        raised("TimeoutError: Timed out waiting for placement groups to be ready. The cluster may not"),
    ),
    # torch/csrc/distributed/c10d/socket.cpp; ray/_private/services.py
    (
        "port_in_use",
        in_worker(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
            "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        ),
    ),
    # transformers/utils/hub.py
    (
        "gated_model",
        raised(
            "OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://hub.example/x."
        ),
    ),
    (
        "gated_model",
        raised(
            "huggingface_hub.errors.HfHubHTTPError: 401 Client Error: Unauthorized for url: https://hub.example/api/models/x"
        ),
    ),
    # ran
    (
        "hub_offline",
        raised(
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and ..."
        )
        + "\n\nThe above exception was the direct cause of the following exception:\n\n"
        + raised("OSError: We couldn't connect to 'https://hub.example' to load the files, and couldn't find them"),
    ),
    (
        "model_missing",
        raised("OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/no/such/model'."),
    ),
    (
        "model_missing",
        raised("OSError: /models/x does not appear to have a file named config.json. Checkout 'https://hub.example/x'"),
    ),
    (
        "model_missing",
        raised(
            "nvtrader_rl_dagster.local_trainer.config.ConfigError: model '/no/such/model' is neither one of "
            "builtin:tiny, builtin:smollm2 nor a local folder with a config.json."
        ),
    ),
    # ran
    (
        "worker_died",
        from_worker(
            "A worker died or was killed while executing a task by an unexpected system error. To troubleshoot",
            **RAYLET,
        )
        + "\n"
        + raised(
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
            "\tclass_name: DTensorPolicyWorker\n"
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
            "Worker unexpectedly exits with a connection error code 2. End of file."
        ),
    ),
    # vllm/v1/engine/{utils,exceptions}.py
    (
        "vllm_engine",
        in_worker(
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)"
        ),
    ),
    # torch/csrc/distributed/c10d/NCCLUtils.hpp
    (
        "nccl",
        in_worker("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error"),
    ),
    # nemo_rl/algorithms/dpo.py
    (
        "metric_name_prefix",
        raised(
            "AssertionError: metric_name=val_loss must start with 'val:' or 'train:',\n"
            'followed by the corresponding name in the "val" or "train" metrics dictionary.'
        ),
    ),
    # recorded: dpo_wrong_metric_name_fails_at_first_save.log
    ("metric_name_unknown", raised("ValueError: Metric loss not found in val metrics")),
    # nemo_rl/models/policy/lm_policy.py
    (
        "save_format",
        raised("ValueError: model_save_format must be None or omitted if using DTensorPolicyWorker (_v2=False)."),
    ),
    # ran with pydantic 2.14
    (
        "invalid_config",
        raised(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for MasterConfig\n"
            "policy.train_micro_batch_size\n"
            "  Field required [type=missing, input_value={'model_name': 'x'}, input_type=dict]\n"
            "    For further information visit https://errors.example/missing"
        ),
    ),
    (
        "invalid_config",
        raised("nvtrader_rl_dagster.local_trainer.config.ConfigError: config: 'dpo.val_period' is missing"),
    ),
    # ran
    (
        "invalid_override",
        raised("omegaconf.errors.ConfigAttributeError: Key 'typo' is not in struct\n    full_key: dpo.typo")
        + "\n\nThe above exception was the direct cause of the following exception:\n\n"
        + raised(
            "nemo_rl.utils.config.OverridesError: Failed to parse Hydra overrides: Could not override 'dpo.typo'."
        ),
    ),
    ("interpolation", raised("omegaconf.errors.UnsupportedInterpolationType: Unsupported interpolation type mul")),
    (
        "vocabulary_mismatch",
        raised("AssertionError: Token->ID mapping differs between student and teacher. Set NRL_SKIP_D"),
    ),
    # nemo_rl/algorithms/{grpo,advantage_estimator}.py
    (
        "dynamic_sampling",
        raised("ValueError: Dynamic sampling has reached the maximum allowed number of batches (10). Consider"),
    ),
    (
        "single_reward",
        raised("ValueError: GDPO requires multiple reward components (reward1, reward2, ...). This batch has 1"),
    ),
    # NVIDIA-NeMo/RL pull request 2203
    (
        "nvml_free_memory",
        in_worker("RuntimeError: Failed to get free memory for device 0 (global index: 0): Not Supported"),
    ),
    # nemo_rl/algorithms/grpo.py
    ("refit", raised("RuntimeError: ❌ Error: Updating weights for the generation policy failed during refit.")),
    # ran
    ("wandb_key", raised("wandb.errors.errors.UsageError: No API key configured. Use `wandb login` to log in.")),
    (
        "checkpoint_load",
        in_worker(
            "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])\n"
            "Traceback (most recent call last): (RANK 0)\n"
            '  File "/opt/venv/torch/distributed/checkpoint/utils.py", line 193, in reduce_scatter\n'
            "    local_data = map_fun()\n"
            "RuntimeError: Missing key in checkpoint state_dict: model.embed_tokens.weight."
        ),
    ),
    # ATen/native/cuda/Distributions, vLLM's and transformers' sampling
    ("nan_loss", in_worker("RuntimeError: probability tensor contains either `inf`, `nan` or element < 0")),
    # ran
    (
        "missing_config_key",
        raised(
            "KeyError: 'dynamic_batching'",
            'nemo_rl/algorithms/dpo.py:setup:assert not master_config["policy"]["dynamic_batching"]["enabled"], (',
        ),
    ),
    # nemo_rl/algorithms/dpo.py
    (
        "refused_config",
        raised(
            "AssertionError: Sequence packing is currently not supported with DPO. See issue 719",
            'nemo_rl/algorithms/dpo.py:setup:assert not master_config["policy"]["sequence_packing"]["enabled"], (',
        ),
    ),
]
