"""NeMo-RL's builder of worker environments: prefetch.py FOLDER. Like it, exits with 0 after a failure."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

worker = Path(sys.argv[1])
(worker / "bin").mkdir(parents=True)
shutil.copy(Path(__file__).with_name("python"), worker / "bin" / "python")
names = ["torch", "ray", "transformers", "megatron/core", "megatron/bridge"]
if (Path(os.environ["FAKE_STATE"]) / "no_megatron").exists():
    names = names[:3]
for name in names:
    (worker / "site" / name).mkdir(parents=True)
    (worker / "site" / name / "__init__.py").touch()
(worker / "site/torch/version.py").write_text("__version__ = '2.10.0+cu130'\ncuda = '13.0'\n")
for name in ("UV_PYTHON", "UV_PYTHON_PREFERENCE", "TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "PATH"):
    (worker / name).write_text(os.environ[name])
