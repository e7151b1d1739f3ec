"""The environment of a run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from runtime.train import credentials

# Variables that change a run.
RECORDED = re.compile(
    r"(ACCELERATE|CUBLAS|CUDA|DS|FSDP|HF|NCCL|OMP|PYTORCH|TOKENIZERS|TORCH|TRANSFORMERS|TRL|TRITON|VLLM|WANDB)_\w+"
)
# They name a GPU of one machine. A run may be resumed on another.
OF_THE_MACHINE = {"CUDA_VISIBLE_DEVICES"}


def recorded(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that change a run, without secrets."""
    names = (name for name in sorted(environ) if RECORDED.fullmatch(name) and not credentials.VARIABLE.search(name))
    return {name: environ[name] for name in names if name not in OF_THE_MACHINE}


def complete(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the processes of a run. Variables that the user set stay as they are."""
    defaults = {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        "HF_HOME": "/tmp/huggingface",
    }
    if not shutil.which("gcc"):
        # A CPU image has no compiler, so nothing may need one.
        defaults |= {
            "DS_ACCELERATOR": "cpu",
            "VLLM_CPU_CI_ENV": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_USE_AOT_COMPILE": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
    key = Path("/run/secrets/wandb_api_key")
    if key.is_file() and (text := key.read_text(encoding="utf-8").strip()):
        defaults["WANDB_API_KEY"] = text  # W&B does not read secret files
    # Variables of torchrun would add to the options that it gets here, or replace them.
    mine = {name: value for name, value in environ.items() if not name.startswith("PET_")}
    # A launcher's workers import nothing from the current folder either.
    return {**defaults, **mine, "PYTHONSAFEPATH": "1"}
