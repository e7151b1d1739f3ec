"""The environment that probes run in: offline, small, everything written below one directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# What a probe sees must not depend on the shell it was started from: only these pass.
_INHERITED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "CC",
    "CXX",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    # Set in an image, which nothing writes to; unset on a host, where the first import leaves its bytecode.
    "PYTHONDONTWRITEBYTECODE",
)

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_MODE": "disabled",
    # Without a network there is only the loopback interface, and the host's own name may resolve to nothing.
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "TP_SOCKET_IFNAME": "lo",
    "VLLM_HOST_IP": "127.0.0.1",
}

_FORKING = {
    # torch.cuda.is_available() would otherwise start CUDA, which does not survive a fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Idle OpenMP threads sleep. Spinning ones make tiny operations ten times slower on cores that others use as well.
    "OMP_WAIT_POLICY": "PASSIVE",
    # A pool of compiler processes would outlive the probe that started it.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}

_CPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "DS_ACCELERATOR": "cpu",
    # GiB; without it vLLM reserves a share of all memory.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Nothing is compiled: Inductor takes half a minute for it, and a C++ compiler, which a CPU image does not carry.
    # With only the first of the two, vLLM still traces its model, over and over; with only the second, it refuses.
    "VLLM_CPU_CI_ENV": "1",
    "TORCHDYNAMO_DISABLE": "1",
    # There is nothing compiled to keep, but vLLM would still hash its own code on every forward, three times the work.
    "VLLM_USE_AOT_COMPILE": "0",
}


def environment(device: str, home: Path, root: Path, python: str = sys.executable) -> dict[str, str]:
    """The environment of the processes that run probes on `device`, "cpu" or "cuda", in the interpreter `python`.

    Every cache and the home directory lie below `home`; modules are found in `root` and where they were before.
    """
    caches = {
        "HOME": home,
        "TMPDIR": home / "tmp",
        "XDG_CACHE_HOME": home / ".cache",
        "XDG_CONFIG_HOME": home / ".config",
        "HF_HOME": home / ".cache/huggingface",
        "VLLM_CACHE_ROOT": home / ".cache/vllm",
        "VLLM_CONFIG_ROOT": home / ".config/vllm",
        "TRITON_CACHE_DIR": home / ".cache/triton",
        "TORCHINDUCTOR_CACHE_DIR": home / ".cache/inductor",
        "TORCH_EXTENSIONS_DIR": home / ".cache/torch_extensions",
        "NUMBA_CACHE_DIR": home / ".cache/numba",
    }
    own = {
        # A container's user often has no entry in /etc/passwd; getpass.getuser() then asks these.
        "USER": "smoke",
        "LOGNAME": "smoke",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH")))),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        # The interpreter itself, for tools such as ninja that packages start by name.
        "PATH": os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath))),
    }
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        **inherited,
        **{name: str(path) for name, path in caches.items()},
        **own,
        **_OFFLINE,
        **_FORKING,
        **(_CPU if device == "cpu" else {}),
    }
