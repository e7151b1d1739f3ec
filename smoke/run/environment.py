"""The environment variables of probes: offline, few threads, everything written below one directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Probes must not depend on the user's shell: only these variables are inherited.
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
    # Set in an image, which is read-only; unset on a host, where the first import writes bytecode.
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
    # Without a network there is only the loopback interface, and the host's name may not resolve.
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "TP_SOCKET_IFNAME": "lo",
    "VLLM_HOST_IP": "127.0.0.1",
}

_FORKING = {
    # torch.cuda.is_available() would otherwise start CUDA, which does not survive a fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Idle OpenMP threads sleep. Spinning ones make tiny operations ten times slower on shared cores.
    "OMP_WAIT_POLICY": "PASSIVE",
    # A pool of compiler processes would outlive the probe that started it.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}

_CPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "DS_ACCELERATOR": "cpu",
    # GiB; without it vLLM reserves a share of all memory.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # No compilation: Inductor needs half a minute for it, and a C++ compiler, which a CPU image does not have.
    # With only the first of the two, vLLM still traces its model again and again; with only the second, it refuses.
    "VLLM_CPU_CI_ENV": "1",
    "TORCHDYNAMO_DISABLE": "1",
    # Nothing is compiled, so there is nothing to cache, but vLLM would still hash its own code on every forward.
    "VLLM_USE_AOT_COMPILE": "0",
}

_CUDA = {
    # As nvidia-smi and the driver's files number them.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    # Without a fixed workspace, cuBLAS may add in another order in each run: some probes compare bit for bit.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}


def environment(device: str, home: Path, root: Path, python: str = sys.executable) -> dict[str, str]:
    """The environment of the processes that run probes on `device`, "cpu" or "cuda", in the interpreter `python`.

    All caches and the home directory are below `home`. `root` is added to PYTHONPATH.
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
        # A container's user often has no entry in /etc/passwd; getpass.getuser() then reads these.
        "USER": "smoke",
        "LOGNAME": "smoke",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH")))),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        # The interpreter's own folder, for tools such as ninja that packages start by name.
        "PATH": os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath))),
    }
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        **inherited,
        **{name: str(path) for name, path in caches.items()},
        **own,
        **_OFFLINE,
        **_FORKING,
        **(_CPU if device == "cpu" else _CUDA),
    }
