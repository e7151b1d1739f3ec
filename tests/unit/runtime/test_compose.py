"""compose.yaml: what every service is refused, and that nothing secret or unpinned is in it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.gpu.machines import driver_capabilities

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
    service: dict[str, Any] = BASE["services"][request.param]
    return service


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


def test_what_a_person_keeps_is_only_read_and_only_a_notebook_is_saved(service: dict[str, Any]) -> None:
    written = {volume["source"] for volume in service.get("volumes", ()) if not volume.get("read_only")}
    results = {"./runs", "${VETTED_CACHE:-./.vetted/huggingface}/datasets"}  # and what can be made again
    notebook = service == BASE["services"]["notebook"]
    assert written - results == ({"${VETTED_WORK:-${PWD:-.}}"} if notebook else set())


def test_a_shell_and_a_notebook_see_what_training_sees() -> None:
    train, shell, notebook = (BASE["services"][name] for name in ("train", "shell", "notebook"))
    assert shell["volumes"] == train["volumes"] and shell["environment"] == train["environment"]
    targets = [[volume["target"] for volume in service["volumes"]] for service in (train, notebook)]
    assert targets[0] == targets[1] and notebook["environment"] == train["environment"]
    for file in ("compose.gpu.yaml", "compose.network.yaml"):
        train, shell, notebook = (read(file)["services"][name] for name in ("train", "shell", "notebook"))
        assert shell == train
        assert notebook == {key: value for key, value in train.items() if key != "network_mode"}


def test_a_shell_and_a_notebook_start_only_when_they_are_asked_for() -> None:
    assert all(BASE["services"][name]["profiles"] == ["tools"] for name in ("shell", "notebook"))


def test_a_container_sees_the_cache_of_the_hub_and_not_the_token_beside_it() -> None:
    for file in FILES:
        for service in read(file)["services"].values():
            sources = [volume["source"] for volume in service.get("volumes", ()) if "CACHE" in volume["source"]]
            assert all(source.endswith(("}/hub", "}/datasets")) for source in sources)


def test_without_a_network_the_cache_is_only_read_and_with_one_downloads_stay_in_it() -> None:
    def mount(file: str) -> Any:
        volumes = read(file)["services"]["train"]["volumes"]
        return next(volume for volume in volumes if volume["target"] == "/cache/hub")

    assert mount("compose.yaml")["read_only"] is True
    assert mount("compose.network.yaml")["read_only"] is False
    assert mount("compose.yaml")["source"] == mount("compose.network.yaml")["source"]
    environment = read("compose.network.yaml")["services"]["train"]["environment"]
    assert {"HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "SSL_CERT_FILE"} <= environment.keys()


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
    assert seen == dict.fromkeys(("train", "shell", "notebook", "smoke", "preflight"), "${VETTED_GPUS:-0}")
    for service in overlay.values():
        (devices,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert devices == {"driver": "nvidia", "count": "all", "capabilities": ["gpu", "compute", "utility"]}
        assert "compute" in driver_capabilities(devices["capabilities"])


def test_the_trainer_waits_for_the_server_and_finds_it_past_any_proxy() -> None:
    """Docker hands the proxies of its configuration to every container, and no proxy reaches its loopback."""
    train, server = read("compose.server.yaml")["services"]["train"], BASE["services"]["vllm"]
    assert train["depends_on"] == {"vllm": {"condition": "service_healthy"}}
    assert {"0.0.0.0", "127.0.0.1"} <= set(train["environment"]["no_proxy"].split(","))  # noqa: S104 — TRL's default
    assert "127.0.0.1" in server["environment"]["no_proxy"].split(",")


def test_the_trainer_is_told_which_gpus_are_the_servers() -> None:
    (told,) = {read("compose.server.yaml")["services"]["train"]["environment"]["VETTED_SERVER_GPUS"]}
    assert told == read("compose.gpu.yaml")["services"]["vllm"]["environment"]["CUDA_VISIBLE_DEVICES"]
