""".env: some variables are set, and everything else a person keeps there stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from builder.base import errors
from builder.publish import dotenv, hub
from builder.publish.dotenv import Overlays
from tests.conftest import TINY, Small

VALUES = {"VETTED_IMAGE": "a.b/c@sha256:1", "VETTED_STACK": "tiny"}
BOTH = "VETTED_IMAGE=a.b/c@sha256:1\nVETTED_STACK=tiny\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", BOTH),
        (BOTH, BOTH),
        ("PORT=1", f"PORT=1\n{BOTH}"),
        ("# mine\n\nPORT=1\n", f"# mine\n\nPORT=1\n{BOTH}"),
        ("A=1\nVETTED_STACK=old\nB=2\n", "A=1\nVETTED_STACK=tiny\nB=2\nVETTED_IMAGE=a.b/c@sha256:1\n"),
        ("export VETTED_IMAGE = old\nVETTED_STACK=x\nVETTED_IMAGE=older\n", BOTH),
        ("#VETTED_IMAGE=old\nMY_VETTED_IMAGE=x\n", f"#VETTED_IMAGE=old\nMY_VETTED_IMAGE=x\n{BOTH}"),
    ],
)
def test_the_variables_are_set_once_and_the_rest_stays(before: str, after: str) -> None:
    assert dotenv.replaced(before, VALUES) == after
    assert dotenv.replaced(after, VALUES) == after


def test_a_file_of_any_bytes_keeps_them(small: Small) -> None:
    path = dotenv.path(small.project)
    path.write_bytes(b"NAME=\xff\xfe\n")
    stack = small.lock.stack
    assert dotenv.pin(small.project, stack, TINY, "a.b/c@sha256:1", small.root / "certificates", small.scratch())
    assert path.read_bytes().startswith(b"NAME=\xff\xfe\n" + BOTH.encode())
    assert not dotenv.pin(small.project, stack, TINY, "a.b/c@sha256:1", small.root / "certificates", small.scratch())


@pytest.mark.parametrize(
    ("before", "device", "files"),
    [
        ("", "cpu", "compose.yaml"),
        ("", "cuda", "compose.yaml:compose.gpu.yaml"),
        ("COMPOSE_FILE=compose.yaml:compose.gpu.yaml:mine.yaml\n", "cpu", "compose.yaml:mine.yaml"),
        ("COMPOSE_FILE=compose.yaml:mine.yaml\n", "cuda", "compose.yaml:compose.gpu.yaml:mine.yaml"),
        ("COMPOSE_FILE=mine.yaml\n", "cuda", "mine.yaml:compose.gpu.yaml"),
    ],
)
def test_a_stack_for_gpus_brings_its_compose_file_and_leaves_those_of_others(
    small: Small, before: str, device: Literal["cpu", "cuda"], files: str
) -> None:
    dotenv.path(small.project).write_text(before)
    stack = small.lock.stack.model_copy(update={"device": device})
    dotenv.pin(small.project, stack, TINY, "a.b/c@sha256:1", small.root / "certificates", small.scratch())
    assert f"COMPOSE_FILE={files}\n" in dotenv.path(small.project).read_text()


@pytest.mark.parametrize(
    ("before", "overlays", "files", "profiles"),
    [
        ("", Overlays(network=True), "compose.yaml:compose.network.yaml", None),
        ("", Overlays(network=True, server=True), "compose.yaml:compose.network.yaml:compose.server.yaml", "server"),
        ("COMPOSE_FILE=compose.yaml:compose.network.yaml\n", Overlays(), "compose.yaml:compose.network.yaml", None),
        ("COMPOSE_FILE=compose.yaml:compose.network.yaml:mine.yaml\n", Overlays(network=False), "compose.yaml:mine.yaml", None),  # noqa: E501
        (
            "COMPOSE_FILE=compose.yaml:compose.server.yaml:mine.yaml\nCOMPOSE_PROFILES=tools,server\n",
            Overlays(network=True),
            "compose.yaml:compose.network.yaml:compose.server.yaml:mine.yaml",
            "tools,server",
        ),
        ("COMPOSE_FILE=compose.yaml:compose.server.yaml\nCOMPOSE_PROFILES=server\n", Overlays(server=False), "compose.yaml", ""),  # noqa: E501
    ],
)  # fmt: skip
def test_overlays_stay_in_their_order_until_they_are_taken_back(
    small: Small, before: str, overlays: Overlays, files: str, profiles: str | None
) -> None:
    dotenv.path(small.project).write_text(before)
    folder = small.root / "certificates"
    dotenv.pin(small.project, small.lock.stack, TINY, "a.b/c@sha256:1", folder, small.scratch(), overlays)
    lines = dotenv.path(small.project).read_text().splitlines()
    assert f"COMPOSE_FILE={files}" in lines
    assert [line for line in lines if line.startswith("COMPOSE_PROFILES")] == (
        [] if profiles is None else [f"COMPOSE_PROFILES={profiles}"]
    )


def test_the_network_brings_files_for_tokens_and_the_authorities_of_the_host(
    small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.crt"
    bundle.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("VETTED_SECRETS", str(tmp_path / "secrets"))
    folder = small.root / "certificates"
    dotenv.pin(small.project, small.lock.stack, TINY, "a@sha256:1", folder, small.scratch())
    assert not (tmp_path / "secrets").exists()
    dotenv.pin(small.project, small.lock.stack, TINY, "a@sha256:1", folder, small.scratch(), Overlays(network=True))
    assert f"VETTED_CA={bundle}\n" in dotenv.path(small.project).read_text()
    tokens = sorted((tmp_path / "secrets").iterdir())
    assert [(path.name, path.stat().st_mode & 0o777) for path in tokens] == [
        ("hf_token", 0o600),
        ("wandb_api_key", 0o600),
    ]
    assert {path.stat().st_uid for path in tokens} == {int(dotenv.owner(small.project).partition(":")[0])}
    tokens[0].write_text("secret")
    dotenv.pin(small.project, small.lock.stack, TINY, "a@sha256:1", folder, small.scratch(), Overlays(network=True))
    assert tokens[0].read_text() == "secret"


def test_the_cache_is_the_hosts_where_the_container_may_write_it(
    small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    mine, other = f"{os.geteuid()}:{os.getegid()}", "4321:1234"
    ours, results = small.root / ".vetted" / "huggingface", small.root / "runs"
    assert hub.cache(ours, mine, results) == tmp_path / "hf"
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == ["datasets", "hub"]
    assert hub.cache(ours, other, results) == ours
    if os.geteuid() == 0:
        assert (ours / "hub").stat().st_uid == 4321


@pytest.mark.parametrize(
    ("folder", "value"),
    [
        ("lockfiles/tiny/certificates", "./lockfiles/tiny/certificates"),
        ("a b/c", "'./a b/c'"),
        ("a\\b", "'./a\\b'"),
        ("it's $HOME #1", "'./it\\'s $HOME #1'"),
    ],
)
def test_the_folder_of_the_certificates_is_there_and_named_as_compose_reads_it(
    small: Small, folder: str, value: str
) -> None:
    dotenv.pin(small.project, small.lock.stack, TINY, "a.b/c@sha256:1", small.root / folder, small.scratch())
    assert (small.root / folder).is_dir()
    assert f"VETTED_CERTIFICATES={value}\n" in dotenv.path(small.project).read_text()


def test_results_belong_to_the_owner_of_the_folder_and_nothing_runs_as_root(small: Small) -> None:
    runs = small.root / "runs"
    mine = dotenv.owner(small.project)
    assert mine == f"{runs.stat().st_uid}:{runs.stat().st_gid}"
    assert not mine.startswith("0:")
    if os.geteuid() == 0:
        os.chown(runs, 4321, 1234)
        assert dotenv.owner(small.project) == "4321:1234"


@pytest.mark.parametrize(("total", "memory"), [(4096, 3072), (8192, 6144), (65536, 63488), (1, 0)])
def test_a_host_keeps_some_of_its_memory(total: int, memory: int) -> None:
    assert dotenv.memory(total) == memory


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("VETTED_MEMORY=3g\nVETTED_PIDS=99\n", {"VETTED_MEMORY": "3g", "VETTED_PIDS": "99"}),
        ("export VETTED_MEMORY = 3g\n", {"VETTED_MEMORY": "3g"}),
        ("VETTED_MEMORY=\n", {}),
        ("", {}),
    ],
)
def test_limits_are_those_of_the_machine_unless_a_person_set_others(
    small: Small, before: str, kept: dict[str, str]
) -> None:
    dotenv.path(small.project).write_text(before)
    dotenv.pin(small.project, small.lock.stack, TINY, "a.b/c@sha256:1", small.root / "certificates", small.scratch())
    lines = [line.removeprefix("export ").split("=", 1) for line in dotenv.path(small.project).read_text().splitlines()]
    variables = {name.strip(): value.strip() for name, value in lines}
    assert {name: variables[name] for name in ("VETTED_MEMORY", "VETTED_PIDS")} == {**dotenv.limits(), **kept}
    assert len(lines) == len(variables)


def test_a_user_without_a_home_folder_gets_the_cache_of_the_project_and_names_the_folder_of_tokens(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HF_HOME", "VETTED_SECRETS"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(Path, "home", nowhere)
    ours = small.root / ".vetted" / "huggingface"
    assert hub.cache(ours, f"{os.geteuid()}:{os.getegid()}", small.root / "runs") == ours
    with pytest.raises(errors.BadInputError, match="HOME is not set: where tokens are kept is not known"):
        hub.secrets("1000:1000")
