"""What code in a container of compose.yaml tries against the host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.runtime.test_compose import BASE, RESET, read


@pytest.mark.parametrize("name", ["train", "shell", "smoke", "preflight", "vllm"])
def test_code_in_a_container_asks_a_service_of_the_host(name: str) -> None:
    """The gateway of every network is the host, even of an `internal` one: services that need no network have none."""
    assert BASE["services"][name]["network_mode"] == "none"
    assert "networks" not in BASE["services"][name]


@pytest.mark.parametrize("name", ["tensorboard", "notebook"])
def test_code_behind_a_published_port_sends_what_it_reads_to_the_internet(name: str) -> None:
    """A published port needs a network; on this one no address beyond the host answers."""
    (network,) = BASE["services"][name]["networks"]
    assert BASE["networks"][network]["driver_opts"]["com.docker.network.bridge.enable_ip_masquerade"] == "false"


def test_the_server_of_vllm_is_asked_from_outside() -> None:
    """Trainer and server share one loopback interface instead of a network."""
    train: dict[str, Any] = read("compose.server.yaml")["services"]["train"]
    assert train["network_mode"] == "service:vllm"
    assert train["networks"] == RESET
    assert "ports" not in BASE["services"]["vllm"]


def test_a_network_comes_only_with_the_file_that_is_named_after_it() -> None:
    """No other overlay gives a service one."""
    for file in ("compose.gpu.yaml", "compose.server.yaml"):
        document = read(file)
        assert "networks" not in document
        assert all(service.get("networks", RESET) == RESET for service in document["services"].values())


@pytest.mark.parametrize("name", BASE["services"])
def test_code_in_a_container_takes_all_memory_or_processes_of_the_host(name: str) -> None:
    """Every service has limits, swap included, with and without a value in .env."""
    service = BASE["services"][name]
    assert service["mem_limit"] == service["memswap_limit"] == "${VETTED_MEMORY:-16g}"
    assert service["pids_limit"] == "${VETTED_PIDS:-4096}"
