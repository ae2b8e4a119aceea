"""Known failures of memory, disk, Ray and the network."""

from __future__ import annotations

from nvtrader_rl_dagster.nemo_rl.diagnosis.failure import Kind, KnownFailure

RESOURCES = (
    KnownFailure(
        code="disk_full",
        title="the disk is full",
        shows="No space left on device · PytorchStreamWriter failed writing · Local disk is full",
        meaning="There was no room for the log, a checkpoint or Ray's objects. torch.save says it as an iostream "
        "error.",
        handled="Some bytes are kept back, so that the end of the run can be written down; no line of the log is cut.",
        remedy="Free space (nvtrader-rl prune), then repeat the Dagster run: it goes on from the last checkpoint.",
        raised=(
            r"No space left on device",
            r"File too large",
            r"Disk quota exceeded",
            r"database or disk is full",
            r"iostream error|PytorchStreamWriter failed writing|inline_container.*unexpected pos",
            r"local disk's utilization is over capacity|Local disk is full",
        ),
    ),
    KnownFailure(
        code="vllm_memory",
        title="vLLM does not get the memory that it is to take",
        shows="Free memory on device cuda:0 (…) on startup is less than desired GPU memory utilization · No available "
        "memory for the cache blocks · … GiB KV cache is needed, which is larger than the available KV cache memory",
        meaning="gpu_memory_utilization is a share of the whole memory, taken at the start. On a GB10 it is the "
        "memory of the whole machine, and the training itself needs its part.",
        handled="The bridge's configurations ask for a small share on unified memory.",
        remedy="Free memory, or change policy.generation.vllm_cfg.gpu_memory_utilization (0.3 to 0.5 on a GB10); a "
        "smaller max_model_len needs less.",
        raised=(
            r"on startup is less than desired GPU memory utilization",
            r"No available memory for the cache blocks",
            r"KV cache is needed, which is larger than the available KV cache memory",
            r"is larger than the maximum number of tokens that can be stored in KV cache",
        ),
    ),
    KnownFailure(
        code="gpu_out_of_memory",
        title="the GPU's memory is full",
        shows="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …",
        meaning="Model, optimizer and activations do not fit beside what else is in the GPU's memory.",
        handled="Preflight predicts the need and warns.",
        remedy="Lower the micro batch or the sequence length, turn on activation checkpointing, use LoRA or a smaller "
        "model; nvidia-smi shows who else is there.",
        raised=(
            r"CUDA out of memory",
            r"CUDA error: out of memory",
            r"CUBLAS_STATUS_ALLOC_FAILED",
            r"cudaErrorMemoryAllocation",
        ),
    ),
    KnownFailure(
        code="out_of_memory",
        title="the machine's memory is full",
        shows="Task was killed due to the node running low on memory · Workers (tasks / actors) killed due to memory "
        "pressure (OOM) · Cannot allocate memory",
        meaning="Ray ends a worker when 95 % of the memory is in use; on unified memory the model on the GPU counts. "
        "Or the kernel killed a process.",
        handled="Preflight predicts the need; a trainer that the kernel killed is started again from its last "
        "checkpoint.",
        remedy="End what else needs memory, or train with less: smaller batch, shorter sequences, LoRA, no optimizer "
        "in the checkpoint. RAY_memory_usage_threshold moves Ray's limit.",
        raised=(
            r"killed due to the node running low on memory",
            r"exceeds the memory usage threshold",
            r"^MemoryError",
            r"Cannot allocate memory",
            r"DefaultCPUAllocator: (can't allocate|not enough) memory",
            r"DataLoader worker \(pid[^)]*\) is killed by signal: Killed",
        ),
        printed=(
            "Workers (tasks / actors) killed due to memory pressure",
            "Task was killed due to the node running low on memory",
        ),
    ),
    KnownFailure(
        code="shared_memory",
        title="/dev/shm is too small",
        shows="Bus error · insufficient shared memory (shm) · unable to open shared memory object",
        meaning="Processes hand over data in shared memory, and a container gives 64 MB of it by default.",
        handled="The compose file sets shm_size.",
        remedy="Start the container with --shm-size=16g (or --ipc=host), or free files in /dev/shm.",
        raised=(
            r"killed by signal: Bus error",
            r"insufficient shared memory",
            r"unable to (open|allocate) shared memory",
            r"Couldn't allocate shared memory segment",
        ),
        printed=("Unexpected bus error encountered in worker", "Fatal Python error: Bus error", "*** SIGBUS received"),
    ),
    KnownFailure(
        code="ray_gcs_timeout",
        title="Ray's control service cannot be reached",
        shows="Failed to connect to GCS · Timed out while waiting for GCS to become available",
        meaning="Usually the remains of an earlier cluster: an address of a dead one, or daemons that still hold its "
        "ports.",
        handled="Every training has a Ray folder of its own, its processes are ended with it, and it is refused "
        "beside a cluster that is not ours.",
        remedy="nvtrader-rl doctor lists Ray daemons that are left; if they are yours, end them (ray stop --force). "
        "Old session folders of Ray go with bash scripts/bootstrap_nemo_rl.sh --only ray.",
        raised=(
            r"Failed to (start|connect to) GCS",
            r"Timed out while waiting for GCS",
            r"Unable to connect to GCS",
            r"GCS may have been killed",
            r"GCS server is dead or there's a high load there",
        ),
        printed=("Failed to connect to GCS",),
        gotcha=7,
    ),
    KnownFailure(
        code="ray_start",
        title="Ray does not start",
        shows="The current node timed out during startup · AF_UNIX path length cannot exceed 107 bytes · Failed to "
        "start a dashboard",
        meaning="A daemon of the training's own cluster died or did not answer.",
        handled="The bridge gives Ray a short folder of its own.",
        remedy="Look into session_latest/logs of Ray's folder (raylet.err, gcs_server.err); nvtrader-rl doctor checks "
        "the folder and its disk.",
        raised=(
            r"The current node timed out during startup",
            r"Timed out after .* seconds while waiting for node to startup",
            r"AF_UNIX path length cannot exceed",
            r"Failed to start a dashboard",
            r"Timed out waiting for node info for node_id",
            r"Failed to get node info for possible node ids",
        ),
    ),
    KnownFailure(
        code="ray_attach",
        title="NeMo-RL found a Ray cluster that it cannot use",
        shows="Version mismatch: The cluster was started with … · Could not find any running Ray instance · Found "
        "multiple active Ray instances",
        meaning="It first tries to join a cluster of this machine, and that one has another Python or Ray, or is not "
        "there.",
        handled="The bridge removes RAY_ADDRESS and refuses to start beside a foreign cluster.",
        remedy="End the other cluster (its owner: ray stop), and unset RAY_ADDRESS.",
        raised=(
            r"Version mismatch: ",
            r"Found multiple active Ray instances",
            r"Could not find any running Ray instance",
            r"This cluster was started with|The cluster was started with",
        ),
    ),
    KnownFailure(
        code="placement",
        title="Ray has too few GPUs or CPUs for this training",
        shows="ResourceInsufficientError: Not enough GPUs available. Requested 2 GPUs, but only 1 are available in "
        "the cluster.",
        meaning="cluster.gpus_per_node × num_nodes is more than Ray sees, or a group of workers needs more CPU slots.",
        remedy="Set cluster.gpus_per_node to the GPUs that nvidia-smi lists (1 on a GB10), num_nodes to 1, and look "
        "at CUDA_VISIBLE_DEVICES. Rewards from a model need a GPU of their own.",
        raised=(r"ResourceInsufficientError", r"Not enough [GC]PUs available\. Requested"),
        printed=("Not enough GPUs available. Requested", "Not enough CPUs available. Requested"),
    ),
    KnownFailure(
        code="placement_timeout",
        title="the workers found no place within 180 s",
        shows="TimeoutError: Timed out waiting for placement groups to be ready.",
        meaning="The GPUs are there, and something else in the same Ray cluster holds them.",
        remedy="End what else runs in this cluster; nvtrader-rl doctor lists Ray clusters and trainings.",
        raised=(r"Timed out waiting for placement groups to be ready",),
    ),
    KnownFailure(
        code="port_in_use",
        title="a port is taken",
        shows="Address already in use · EADDRINUSE · Failed to bind to 127.0.0.1:8265 because it's already occupied",
        meaning="Two processes chose the same port, mostly for the rendezvous of torch or for Ray's dashboard.",
        remedy="Repeat the run: ports are chosen anew. If it stays, ss -ltnp shows who holds the port.",
        raised=(
            r"[Aa]ddress already in use",
            r"EADDRINUSE",
            r"Failed to bind to .* because it's already occupied",
            r"The server socket has failed to listen on any local network address",
        ),
    ),
    KnownFailure(
        code="gated_model",
        title="the hub does not give this model to you",
        shows="You are trying to access a gated repo · 401 Client Error · 403 Forbidden",
        meaning="Llama models, for example, need an accepted licence and a token of the account that accepted it.",
        handled="A training gets no token unless NVTRADER_NEMORL_PASS_ENV names its variable.",
        remedy="Accept the licence on the model's page and download it once (hf download MODEL); then give its folder "
        "as base model.",
        raised=(
            r"You are trying to access a gated repo",
            r"GatedRepoError",
            r"Access to model .* is restricted",
            r"401 (Client Error|Unauthorized)|403 (Client Error|Forbidden)",
            r"LocalTokenNotFoundError",
        ),
    ),
    KnownFailure(
        code="hub_offline",
        title="the model or data set is not on this machine",
        shows="We couldn't connect to 'https://…' to load the files, and couldn't find them in the "
        "cached files · LocalEntryNotFoundError · OfflineModeIsEnabled",
        meaning="A training runs with HF_HUB_OFFLINE=1, or without a network, and the name is not in the cache.",
        handled="Trainings are offline on purpose; preflight refuses a base model that is not on the disk.",
        remedy="Download it once (hf download MODEL), or name a local folder in policy.model_name and "
        "policy.tokenizer.name, both.",
        raised=(
            r"OfflineModeIsEnabled",
            r"LocalEntryNotFoundError",
            r"We couldn't connect to '",
            r"offline mode is enabled",
            r"Couldn't reach .* on the Hub",
            r"Couldn't reach the Hugging Face Hub",
            r"(Max retries exceeded|Name or service not known|Temporary failure in name resolution)",
        ),
    ),
    KnownFailure(
        code="model_missing",
        title="there is no such model",
        shows="… is not a local folder and is not a valid model identifier · does not appear to have a file named "
        "config.json",
        meaning="The base model is neither a folder with a model nor a name on the hub.",
        handled="Preflight looks into the folder.",
        remedy="Give a folder with config.json, tokenizer and weights, builtin:smollm2, or a name that the hub has.",
        raised=(
            r"is not a local folder and is not a valid model identifier",
            r"does not appear to have a file named",
            r"Can't load (the configuration|tokenizer|the model|feature extractor|image processor)",
            r"Repo id must (be in the form|use alphanumeric chars)",
            r"RepositoryNotFoundError|404 Client Error",
            r"^(\w+\.)*ConfigError: model .* is neither one of .* nor a local folder",
        ),
    ),
    KnownFailure(
        code="worker_died",
        title="a worker process died",
        shows="ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        meaning="Ray noticed that a worker was gone. The reason stands in the worker's own lines, if it had time to "
        "print one: memory, a crash in CUDA, or somebody killed it.",
        remedy="Look at the worker's last lines in the log; dmesg shows whether the kernel killed it for memory.",
        raised=(
            r"ActorDiedError|ActorUnavailableError|RayActorError",
            r"WorkerCrashedError",
            r"LocalRayletDiedError|NodeDiedError|OwnerDiedError",
            r"GetTimeoutError",
        ),
        printed=("A worker died or was killed while executing a task",),
        kind=Kind.SYMPTOM,
    ),
    KnownFailure(
        code="vllm_engine",
        title="vLLM's engine ended",
        shows="RuntimeError: Engine core initialization failed. See root cause above. · EngineDeadError: EngineCore "
        "encountered an issue.",
        meaning="vLLM runs in a process of its own, and the reason stands in what that process printed.",
        remedy="Look for the first error of EngineCore above this line; often it is memory.",
        raised=(r"Engine core initialization failed", r"EngineCore encountered an issue"),
        kind=Kind.SYMPTOM,
    ),
    KnownFailure(
        code="nccl",
        title="the GPUs' communication broke off",
        shows="NCCL error in: … · Watchdog caught collective operation timeout",
        meaning="Mostly another rank died first. On one GPU it means that the driver and torch's CUDA do not fit.",
        remedy="Look for the first error of any rank further up; NCCL_DEBUG=INFO says more.",
        raised=(
            r"NCCL error",
            r"ncclUnhandledCudaError|ncclSystemError|ncclInternalError",
            r"collective operation timeout",
        ),
        kind=Kind.SYMPTOM,
    ),
)
