"""The Dockerfile: what the lock and the templates say, and nothing that a person wrote can change its meaning."""

from __future__ import annotations

import dataclasses
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.image import render
from builder.intent import stack
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from tests.commands import vetted
from tests.conftest import TINY, Small
from tests.unit.conftest import Command


@pytest.fixture(params=["trl1.16-cpu", "trl1.13-cu128", "trl1.16-cu130"])
def lock(real: Project, request: pytest.FixtureRequest) -> Lock:
    """The project's own locks: without CUDA, with that of old and of new names."""
    return lockfile.load(real, request.param)


def test_every_locked_distribution_is_in_exactly_one_group(lock: Lock) -> None:
    placed = Counter(entry for group in render.groups(lock) for entry in group.entries)
    assert placed == Counter(lock.python)
    assert set(placed.values()) == {1}


def test_a_bump_of_trl_changes_one_group(lock: Lock) -> None:
    python = tuple(dataclasses.replace(e, version="9") if e.name == "trl" else e for e in lock.python)
    bumped = render.groups(dataclasses.replace(lock, python=python))
    changed = [new.name for old, new in zip(render.groups(lock), bumped, strict=True) if old != new]
    assert changed == ["trl"]
    assert [entry.name for group in bumped if group.name == "trl" for entry in group.entries] == ["trl"]


def test_groups_come_in_the_order_of_how_seldom_they_change(lock: Lock) -> None:
    names = [group.name for group in render.groups(lock)]
    assert names == [name for name in render.ORDER if name in names]
    assert {"torch", "vllm", "libraries", "transformers", "trl", "source"} <= set(names)


def test_cuda_libraries_have_a_group_of_their_own() -> None:
    names = ["nvidia-nccl-cu13", "cuda-bindings", "triton", "torch", "flashinfer-cubin", "tritonclient"]
    placed = [render._group(name) for name in names]
    assert placed == ["cuda", "cuda", "cuda", "torch", "vllm", "libraries"]


def test_only_an_image_with_nvcc_names_a_cuda_home(real: Project) -> None:
    """Nothing would be found there: the wheels of CUDA 12 bring ptxas, but no nvcc."""
    home = "/opt/venv/lib/python3.13/site-packages/nvidia/cu13"
    text = render.dockerfile(real, lockfile.load(real, "trl1.16-cu130"))
    assert f"    CUDA_HOME={home} \\\n" in text
    assert f"mkdir -p /layer{home}/lib/stubs" in text
    assert "ln -s libcudart.so.13 lib/libcudart.so" in text
    assert "COPY --link --from=toolkit /layer /\n" in text
    for name in ("trl1.13-cu128", "trl1.16-cpu"):
        text = render.dockerfile(real, lockfile.load(real, name))
        assert "CUDA_HOME" not in text
        assert "toolkit" not in text


def test_the_committed_dockerfile_of_every_stack_is_the_rendered_one(real: Project) -> None:
    for name in stack.names(real):
        lock = lockfile.load(real, name)
        assert real.dockerfile(name).read_text(encoding="utf-8") == render.dockerfile(real, lock)
        assert render.difference(real, lock) == ""


def test_every_group_and_every_patch_reaches_the_image(small: Small) -> None:
    text = render.dockerfile(small.project, small.lock)
    assert "FROM base AS libraries\n" in text
    assert "COPY --link --from=libraries /layer /\n" in text
    assert "/mnt/patches/tiny-lib/1.0/0001-greet.patch" in text
    assert "COPY --link --from=libraries-patched /patched /\n" in text
    assert small.lock.digest in text


def test_no_stage_leaves_a_time_of_its_own_behind(real: Project) -> None:
    for name in stack.names(real):
        lock = lockfile.load(real, name)
        stages = render.dockerfile(real, lock).split("\nFROM ")[2:-1]
        assert len(stages) > 8
        leaving = [stage for stage in stages if "/layer" in stage or "/patched" in stage]
        assert [stage.partition("\n")[0] for stage in stages if stage not in leaving] == ["base AS source-wheels"]
        for stage in leaving:
            assert f" -exec touch --no-dereference --date=@{render.LAYER_TIME} {{}} +\n" in stage


def test_patches_of_one_name_for_two_versions_are_two_patches(small: Small) -> None:
    second = small.patch.parents[1] / "1.1" / small.patch.name
    second.parent.mkdir()
    second.write_text(small.patch.read_text())
    toml = small.file("stack.toml")
    block = toml.read_text().partition("[[patch]]")[2]
    toml.write_text(f"{toml.read_text()}[[patch]]{block.replace('/1.0/', '/1.1/')}")
    text = render.dockerfile(small.project, small.lock)
    named = [line.split()[0] for line in text.splitlines() if ".patch " in line]
    assert len(named) == len(set(named)) == 2


def test_a_missing_dockerfile_is_a_difference(small: Small) -> None:
    small.project.dockerfile(TINY).unlink()
    assert "+FROM scratch AS base\n" in render.difference(small.project, small.lock)


def test_a_name_that_the_template_invents_is_an_error(small: Small) -> None:
    template = small.root / "images" / "templates" / "Dockerfile.j2"
    template.write_text(template.read_text() + "# {{ no_such_name }}\n")
    with pytest.raises(errors.BadInputError, match=r"images/templates/Dockerfile\.j2: 'no_such_name' is undefined"):
        render.dockerfile(small.project, small.lock)


def test_a_template_that_is_broken_is_named(small: Small) -> None:
    (small.root / "images" / "templates" / "install.j2").write_text("{% macro install( %}")
    with pytest.raises(errors.BadInputError, match=r"images/templates/install\.j2: ") as caught:
        render.dockerfile(small.project, small.lock)
    assert caught.value.next_step == "correct the template"


def test_a_missing_template_is_named(small: Small) -> None:
    (small.root / "images" / "templates" / "install.j2").unlink()
    with pytest.raises(errors.BadInputError, match=r"images/templates/install\.j2: "):
        render.dockerfile(small.project, small.lock)


@pytest.mark.parametrize(
    "title",
    [
        'the "good" one',
        'x" USER=root y="',
        "$HOME ${HOME} $(id) $$",
        "ends with a backslash \\",
        '\\" \\\\" \\$HOME',
        "it's # no comment; && not a command | <<EOF",
        "TRL 1.16 · vLLM 0.31 – 好",
    ],
)
def test_no_title_breaks_out_of_its_label(small: Small, title: str) -> None:
    plain = render.dockerfile(small.project, small.lock).splitlines()
    small.edit("stack.toml", 'title = "Tiny"', f"title = '''{title}'''")
    assert tomllib.loads(small.file("stack.toml").read_text(encoding="utf-8"))["title"] == title
    titled = render.dockerfile(small.project, small.lock).splitlines()
    ((before, after),) = [(a, b) for a, b in zip(plain, titled, strict=True) if a != b]
    start, end = "LABEL org.opencontainers.image.title=", " \\"
    assert before == f'{start}"Tiny"{end}'
    assert after.startswith(start) and after.endswith(end)
    # Dockerfile strings and the shell's have the same rules for what these titles hold.
    literal = after.removeprefix(start).removesuffix(end)
    printed = subprocess.run(["sh", "-c", f"printf %s {literal}"], capture_output=True, check=True)
    assert printed.stdout.decode() == title


def test_a_dockerfile_edited_by_hand_ends_with_1_and_a_diff(copy: Project) -> None:
    (name, *_) = stack.names(copy)
    path = copy.dockerfile(name)
    path.write_text(path.read_text().replace("USER 1000:1000", "USER root"))
    answer = vetted(copy.root, "render", "--check", name)
    assert answer.code == 1
    assert f"--- images/{name}/Dockerfile (committed)\n" in answer.out
    assert "\n-USER root\n+USER 1000:1000\n" in answer.out
    assert "next: vetted render" in answer.err
    assert "USER root" in path.read_text()


def test_a_dockerfile_left_alone_ends_with_0(copy: Project, command: Command) -> None:
    (name, *_) = stack.names(copy)
    answer = command(copy.root, "render", "--check", name)
    assert (answer.code, answer.out) == (0, "everything rendered is up to date\n")


def test_a_requirement_that_was_never_locked_is_a_bad_input(small: Small) -> None:
    small.edit("stack.toml", '["tiny-lib==1.0"]', '["tiny-lib==1.0", "other==2"]')
    with pytest.raises(errors.VettedError):
        render.difference(small.project, small.lock)


@pytest.mark.parametrize("file", ["images/tiny/Dockerfile", "images/templates/Dockerfile.j2"])
def test_a_file_in_another_encoding_is_a_difference_or_a_bad_input(small: Small, file: str) -> None:
    path: Path = small.root / file
    path.write_bytes(path.read_bytes() + "# Überschrift\n".encode("latin-1"))
    try:
        assert render.difference(small.project, small.lock)
    except errors.VettedError as error:
        assert file in str(error)
