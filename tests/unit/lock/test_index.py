"""The files of a version: which of them a stack can install, which is the best, and how one is downloaded."""

from __future__ import annotations

import pytest
from packaging.tags import Tag

from builder.base import errors
from builder.intent import stack
from builder.lock import index
from tests.conftest import PYTHON, TINY, Small


@pytest.mark.parametrize(
    ("debian", "tag", "runs"),
    [
        ("bookworm", "manylinux_2_36_x86_64", True),
        ("bookworm", "manylinux_2_37_x86_64", False),
        ("trixie", "manylinux_2_41_x86_64", True),
        ("bookworm", "manylinux2014_x86_64", True),
        ("bookworm", "linux_x86_64", True),
        ("bookworm", "manylinux_2_17_aarch64", False),
        ("bookworm", "musllinux_1_2_x86_64", False),
        ("bookworm", "win_amd64", False),
    ],
)
def test_wheels_ask_for_no_newer_glibc_and_no_other_system(small: Small, debian: str, tag: str, runs: bool) -> None:
    if debian != "bookworm":
        small.edit("stack.toml", '"bookworm"', f'"{debian}"')
    interpreter = f"cp{PYTHON.replace('.', '')}"
    offered = index.tags(stack.load(small.project, TINY))
    assert (Tag(interpreter, interpreter, tag) in offered) is runs
    assert (Tag("cp39", "abi3", tag) in offered) is runs


def test_the_most_specific_wheel_is_the_best(small: Small) -> None:
    interpreter = f"cp{PYTHON.replace('.', '')}"
    names = [
        f"x-1-{interpreter}-{interpreter}-manylinux_2_28_x86_64.whl", f"x-1-{interpreter}-none-linux_x86_64.whl",
        "x-1-cp39-abi3-manylinux_2_28_x86_64.whl", "x-1-py3-none-any.whl", "x-1-cp27-cp27m-win32.whl",
    ]  # fmt: skip
    order = {tag: rank for rank, tag in enumerate(index.tags(stack.load(small.project, TINY)))}
    ranks = [index._rank(index.File("x", "1", name, "", ""), order) for name in names]
    assert ranks[-1] is None
    fitting = [rank for rank in ranks if rank is not None]
    assert len(fitting) == 4
    assert min(fitting) == ranks[0] and max(fitting) == ranks[3]


def test_a_download_that_fails_is_a_matter_of_the_network(small: Small) -> None:
    file = index.File("x", "1", "x-1.whl", str(small.root / "gone" / "x-1.whl"), "")
    with pytest.raises(errors.NetworkError, match=r"x-1\.whl: "):
        index.download(file)
    (wheel,) = small.wheelhouse.iterdir()
    assert index.download(index.File("x", "1", wheel.name, str(wheel), "")) == wheel.read_bytes()
