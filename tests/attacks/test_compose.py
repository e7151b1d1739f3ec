"""What code in a container of compose.yaml tries against the host."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.base import errors
from builder.base.project import write
from builder.publish import dotenv, hub, standalone
from tests.conftest import TINY, Small
from tests.unit.runtime.test_compose import BASE, FILES, RESET, Loader, read

DEFAULT = re.compile(r"\$\{[A-Z_]+:-([^${}]*)\}")


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


def documents(small: Small, *, into: bool) -> list[Any]:
    if not into:
        return [read(file) for file in FILES]
    source = standalone.Source("a.b/c@sha256:1")
    return list(yaml.load_all(standalone.document(small.project, TINY, source, dotenv.ORDER), Loader))


@pytest.mark.parametrize("into", [False, True])
def test_code_in_a_container_puts_a_link_in_the_place_of_a_folder_that_the_next_run_mounts(
    small: Small, into: bool
) -> None:
    """Nothing that is mounted lies in a folder that a container may write: the engine would follow the link."""
    services = [service for document in documents(small, into=into) for service in document["services"].values()]
    volumes = [volume for service in services for volume in service.get("volumes", ())]
    assert len(volumes) > 10
    sources = {volume["source"]: DEFAULT.sub(r"\1", volume["source"]).removeprefix("./") for volume in volumes}
    written = {sources[volume["source"]] for volume in volumes if not volume.get("read_only")}
    inside = [source for source in sources.values() if {str(parent) for parent in Path(source).parents[:-1]} & written]
    assert "runs" in written and inside == []


@pytest.mark.parametrize(("name", "code"), [("compose.yaml", 6), ("notes.ipynb", 0)])
def test_code_in_a_notebook_changes_what_the_next_container_mounts(tmp_path: Path, name: str, code: int) -> None:
    """It may write its folder, so it does not start in the one of compose.yaml."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "jupyter").write_text("#!/bin/sh\necho started\n")
    (tmp_path / "bin" / "jupyter").chmod(0o755)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / name).touch()
    done = subprocess.run(
        BASE["services"]["notebook"]["command"], cwd=tmp_path / "here", capture_output=True, text=True, check=False,
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "" if code else "started\n")
    assert ("next: mkdir -p notebooks; VETTED_WORK=notebooks docker compose up notebook" in done.stderr) == bool(code)


@pytest.mark.parametrize("value", ["./runs/.huggingface", "'./runs/.huggingface'", "runs/../runs/x", "linked/x"])
def test_the_cache_that_an_earlier_version_kept_in_runs_is_mounted_on(small: Small, value: str) -> None:
    """A line of .env that names a cache in runs/, also through a link, is replaced."""
    (small.root / "runs").mkdir(exist_ok=True)
    (small.root / "linked").symlink_to("runs")
    dotenv.path(small.project).write_text(f"A=1\nVETTED_CACHE={value}\n")
    dotenv.machine(small.project, small.root / ".huggingface", network=False, scratch=small.scratch())
    assert dotenv.path(small.project).read_text().startswith("A=1\nVETTED_CACHE=./.huggingface\n")
    assert (small.root / ".huggingface" / "hub").is_dir()


def test_the_cache_of_the_environment_lies_in_runs(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_HOME may be there, and still no container gets it."""
    monkeypatch.setenv("HF_HOME", str(small.root / "runs" / "hf"))
    dotenv.machine(small.project, small.root / ".huggingface", network=False, scratch=small.scratch())
    assert "VETTED_CACHE=./.huggingface\n" in dotenv.path(small.project).read_text()


@pytest.mark.parametrize("name", ["", "hub", "datasets"])
def test_a_link_was_put_in_the_place_of_the_cache_and_moved_along(small: Small, tmp_path: Path, name: str) -> None:
    """What an earlier version kept in runs/ was moved, with a link in it that leads to a folder of the user's."""
    (tmp_path / "private" / "hub").mkdir(parents=True)
    place = small.root / ".huggingface"
    (place if name else place.parent).mkdir(exist_ok=True)
    (place / name).symlink_to(tmp_path / "private")
    with pytest.raises(errors.StorageError, match="is a link, and a container would get the folder behind it"):
        hub.cache(place, "4321:4321", small.root / "runs")
    assert sorted(path.name for path in (tmp_path / "private").iterdir()) == ["hub"]


def test_a_file_that_is_written_in_runs_is_a_link_to_one_of_the_users(
    small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The state is on another disk, so a file is first written beside its target, under a name that can be foreseen."""
    mine, replace = tmp_path / "mine", Path.replace
    mine.write_text("mine")
    target = small.root / "runs" / ".gitignore"
    target.parent.mkdir(exist_ok=True)
    target.with_name("..gitignore.partial").symlink_to(mine)

    def across(self: Path, to: Path) -> Path:
        if self.parent != Path(to).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(self))
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", across)
    write(target, "*", small.scratch())
    assert (mine.read_text(), target.read_text(), target.is_symlink()) == ("mine", "*", False)
