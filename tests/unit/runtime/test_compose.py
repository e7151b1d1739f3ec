"""compose.yaml: what every service is refused, and that nothing secret or unpinned is in it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

RESET = "!reset"  # Compose's tag: what the file below says is taken away


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML with Compose's tag."""


Loader.add_constructor(RESET, lambda _loader, _node: RESET)


def read(name: str) -> Any:
    return yaml.load((ROOT / name).read_text(), Loader)


BASE = read("compose.yaml")
FILES = sorted(path.name for path in ROOT.glob("compose*.yaml"))


@pytest.fixture(params=sorted(BASE["services"]))
def service(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = BASE["services"][request.param]
    return found


def test_every_service_is_given_nothing_that_it_does_not_need(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "ipc"} & service.keys()
    assert service["user"] == "${VETTED_USER:-1000:1000}"


def test_every_service_runs_the_image_that_was_chosen(service: dict[str, Any]) -> None:
    assert service["image"].startswith("${VETTED_IMAGE:?")


def test_only_what_a_browser_must_reach_has_a_network(service: dict[str, Any]) -> None:
    if "ports" in service:
        assert service["networks"] == ["browser"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    else:
        assert service["network_mode"] == "none"
        assert service["hostname"] == "localhost", "torch's launcher looks its own name up"


def test_what_a_person_keeps_is_only_read(service: dict[str, Any]) -> None:
    written = [volume["source"] for volume in service.get("volumes", ()) if not volume.get("read_only")]
    assert set(written) <= {"./runs"}


@pytest.mark.parametrize("file", FILES)
def test_no_file_overlays_a_service_that_is_not_there_or_holds_a_token(file: str) -> None:
    document = read(file)
    assert document["services"].keys() <= BASE["services"].keys()
    for service in document["services"].values():
        assert not [name for name in service.get("environment", {}) if name.endswith(("TOKEN", "KEY", "PASSWORD"))]
    assert all("file" in secret for secret in document.get("secrets", {}).values())


def test_with_gpus_the_trainer_and_the_server_see_those_that_are_theirs() -> None:
    overlay = read("compose.gpu.yaml")["services"]
    seen = {name: service["environment"]["CUDA_VISIBLE_DEVICES"] for name, service in overlay.items()}
    assert seen.pop("vllm") == "${VETTED_SERVER_GPUS:-1}"
    assert seen == dict.fromkeys(("train", "smoke", "preflight"), "${VETTED_GPUS:-0}")
    for service in overlay.values():
        (devices,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert devices == {"driver": "nvidia", "count": "all", "capabilities": ["gpu", "compute", "utility"]}
        assert "compute" in driver_capabilities(devices["capabilities"])


def driver_capabilities(requested: list[str]) -> set[str]:
    """What a container gets of the driver, by Docker's rule (moby, daemon/nvidia_linux.go).

    Requested capabilities that are the driver's own become NVIDIA_DRIVER_CAPABILITIES; where none is, the container
    toolkit's default holds. libcuda.so.1 comes with compute.
    """
    own = {"compute", "compat32", "graphics", "utility", "video", "display"} & set(requested)
    return own or {"compute", "utility"}
