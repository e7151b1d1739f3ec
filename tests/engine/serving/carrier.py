"""Carries weights over TCP where NCCL and CUDA would: a plugin of vLLM, and installed in the trainer's process too.

All else is TRL's and vLLM's: the rendezvous, the requests, packing and unpacking, and the loading of what was received.
"""

from __future__ import annotations

import contextlib
from typing import Any


class Carrier:
    """In place of vLLM's PyNcclCommunicator. `group`: vLLM's StatelessProcessGroup, which is TCP."""

    def __init__(self, group: Any, device: Any) -> None:
        self.group = group
        self.device = device

    def broadcast(self, tensor: Any, src: int) -> None:
        received = self.group.broadcast(tensor, src)
        if received is not tensor:
            tensor.copy_(received)


class Stream:
    """In place of a CUDA stream."""

    def synchronize(self) -> None:
        pass


def install() -> None:
    """Called by vLLM in each of its processes."""
    import torch
    from vllm.distributed.device_communicators import pynccl
    from vllm.distributed.weight_transfer import packed_tensor

    pynccl.PyNcclCommunicator = Carrier
    packed_tensor._get_streams = lambda _device, number: [Stream() for _ in range(number)]
    torch.accelerator.current_device_index = lambda: 0
    torch.cuda.stream = lambda _stream: contextlib.nullcontext()
