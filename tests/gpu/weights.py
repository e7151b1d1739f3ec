"""Run twice by the stack's Python, as trainer (0) and as server (1): TRL's way to a weight update.

Prints how far each step came, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from trl.generation import vllm_client
from vllm.distributed.device_communicators import pynccl
from vllm.distributed.utils import StatelessProcessGroup

from tests.attempt import error_of

PORT = 51216  # TRL's own


class Client(vllm_client.VLLMClient):  # type: ignore[misc]
    """TRL's client beside a server that says what it is asked and does nothing."""

    def __init__(self) -> None:
        self.base_url, self.group_port, self.posted = "http://127.0.0.1:8000", PORT, list[str]()

    def get_server_info(self) -> dict[str, Any]:
        return {"weight_transfer_config": {"backend": "nccl"}}

    def get_world_size(self) -> int:
        return 1

    def _post(self, url: str, **_: Any) -> dict[str, Any]:
        self.posted.append(url)
        return {}


def main(rank: int) -> None:
    client = Client()
    answer = {"TRL": error_of(client.init_communicator, rank), "posted": client.posted}
    # What vLLM does in init_communicator, and the server for it: without TRL's own call of the driver before.
    group = StatelessProcessGroup.create(host=vllm_client.get_ip(), port=PORT, rank=rank, world_size=2)
    answer["met"] = group.all_gather_obj(rank)
    answer["vLLM"] = error_of(pynccl.PyNcclCommunicator, group, rank)
    # And what NCCL does in there, without vLLM's call of the driver before.
    library = pynccl.NCCLLibrary()
    identity = group.broadcast_obj(library.ncclGetUniqueId() if rank == 0 else None, src=0)
    answer["identity"] = bytes(identity.internal).hex()
    answer["NCCL"] = error_of(library.ncclCommInitRank, 2, identity, rank)
    group.barrier()  # the store of the first is open until the second is done
    print(json.dumps(answer))


if __name__ == "__main__":
    main(int(sys.argv[1]))
