"""The vLLM server of a run (`vllm_mode: server`): can this stack use one, is its GPU its own, and does it answer?

TRL looks for it only after it has loaded the model, and waits four minutes for one that is not there.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from runtime.check import Check

TIMEOUT = 240  # seconds: TRL's default
PATIENCE = 2.0  # seconds
COMMAND = "vetted use --server, then VETTED_MODEL=MODEL docker compose run --rm train"


def look(settings: Mapping[str, Any], environ: Mapping[str, str], *, cuda: bool) -> list[Check]:
    """Checks of the server of a run with these settings. `cuda`: whether the stack is for GPUs."""
    if str(settings.get("use_vllm")).lower() not in ("true", "1") or settings.get("vllm_mode") != "server":
        return []
    if not cuda:
        message = "vllm_mode: server needs a stack for GPUs: NCCL carries the weights to the server"
        return [Check("stop", message, "set vllm_mode: colocate, or choose another stack: vetted use")]
    if both := _entries(environ.get("CUDA_VISIBLE_DEVICES")) & _entries(environ.get("VETTED_SERVER_GPUS")):
        message = f"GPU {', '.join(sorted(both))} is given to the trainer and to the vLLM server, and NCCL refuses that"
        return [Check("stop", message, "name different ones, such as VETTED_GPUS=0 VETTED_SERVER_GPUS=1")]
    url = settings.get("vllm_server_base_url") or "http://{}:{}".format(
        settings.get("vllm_server_host", "0.0.0.0"),  # noqa: S104 — where TRL looks
        settings.get("vllm_server_port", 8000),
    )
    if not (trouble := _trouble(f"{url}/health")):
        return [Check("ok", f"the vLLM server at {url} answers")]
    wait = settings.get("vllm_server_timeout", TIMEOUT)
    message = f"no vLLM server answers at {url} ({trouble}); TRL waits {wait} s for it"
    return [Check("advice", message, f"with one beside it: {COMMAND} --config …")]


def _entries(gpus: str | None) -> set[str]:
    return {name for name in map(str.strip, (gpus or "").split(",")) if name}


def _trouble(url: str) -> str:
    """Why this address does not answer as a server that is ready; empty if it does."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE):
            return ""
    except urllib.error.HTTPError as error:
        return f"its answer is {error.code}"
    except urllib.error.URLError as error:
        return str(error.reason)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
