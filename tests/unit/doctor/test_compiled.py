"""Extensions and the torch that they were built for, in shared objects made here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from doctor.answer import commands
from doctor.case import Case
from doctor.checks.compiled import LIBRARIES
from doctor.know import cuda
from doctor.read.elf import NotElfError, SharedObject
from tests.unit.doctor.elf import SYMBOL, shared_object
from tests.unit.doctor.kit import install, of, only, reported, rules


def test_a_shared_object_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.so"
    file.write_bytes(shared_object(["libc10.so", "libm.so.6"], [SYMBOL, "malloc"], ["one", "two", "three"]))
    with SharedObject(file) as library:
        assert library.needed == ["libc10.so", "libm.so.6"]
        assert library.undefined(("_ZN3c10",)) == {SYMBOL}
        assert [library.offers(name) for name in ("one", "two", "three", "four", "malloc")] == [True] * 3 + [False] * 2


def torch(folder: Path, offers: Sequence[str]) -> None:
    files = {f"torch/lib/{name}": shared_object(offers=["other"]) for name in LIBRARIES if "cuda" not in name}
    files["torch/lib/libc10.so"] = shared_object(offers=[*offers, "another"])
    install(folder, "torch", "2.8.0+cpu", files=files)


def extension(folder: Path, content: bytes, name: str = "flash-attn") -> None:
    install(folder, name, "2.7.4", files={f"{name.replace('-', '_')}_cuda.cpython-311-x86_64-linux-gnu.so": content})


def accused(case: Case) -> list[str]:
    """The rules that blame something, without what others report of this release of torch."""
    return [rule for rule in rules(case) if rule != "reported"]


def test_an_extension_built_for_another_torch_is_seen_in_its_symbols(tmp_path: Path) -> None:
    torch(tmp_path, offers=["_ZN3c105Error"])
    extension(tmp_path, shared_object(["libc10.so"], [SYMBOL]))
    finding = only(of(tmp_path), "built-for-another-torch")
    assert (finding.confidence, finding.packages) == ("certain", {"flash-attn": "2.7.4", "torch": "2.8.0+cpu"})
    assert SYMBOL in finding.evidence


def test_an_extension_built_for_this_torch_is_left_alone(tmp_path: Path) -> None:
    torch(tmp_path, offers=[SYMBOL])
    extension(tmp_path, shared_object(["libc10.so"], [SYMBOL]))
    assert accused(of(tmp_path)) == []


def test_a_cuda_build_beside_a_torch_for_cpus_is_seen_in_what_it_needs(tmp_path: Path) -> None:
    torch(tmp_path, offers=[SYMBOL])
    extension(tmp_path, shared_object(["libc10.so", "libtorch_cuda.so"]), "torchvision")
    finding = only(of(tmp_path), "built-for-another-torch")
    assert "libtorch_cuda.so" in finding.evidence[0]


def test_an_extension_that_is_cut_off_is_said_to_be(tmp_path: Path) -> None:
    torch(tmp_path, offers=[SYMBOL])
    whole = shared_object(["libc10.so"], [SYMBOL])
    extension(tmp_path, whole[: len(whole) // 2])
    finding = only(of(tmp_path), "broken-file")
    assert (finding.confidence, "cut off" in finding.evidence[0]) == ("likely", True)


def test_a_torch_that_cannot_be_read_accuses_nobody(tmp_path: Path) -> None:
    files = {f"torch/lib/{name}": b"not ELF" for name in LIBRARIES}
    install(tmp_path, "torch", "2.8.0+cpu", files=files)
    extension(tmp_path, shared_object(["libc10.so"], [SYMBOL]))
    assert accused(of(tmp_path)) == []


def test_a_record_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    site = tmp_path / "site"
    torch(site, offers=[SYMBOL])
    info = install(site, "xformers", "1.0")
    (tmp_path / "outside.so").write_bytes(shared_object(["libc10.so"], ["_ZN3c10missing"]))
    (info / "RECORD").write_text("../outside.so,,\n")
    assert accused(of(site)) == []


def test_any_change_of_a_shared_object_is_read_or_refused(tmp_path: Path) -> None:
    """A thousand files with a few bytes changed, or cut off: never another exception, never a hang."""
    whole = shared_object(["libc10.so"], [SYMBOL], ["one", "two", "three", "four"])
    generator = random.Random(1)
    file = tmp_path / "x.so"
    refused = 0
    for _ in range(1000):
        bytes_ = bytearray(whole)
        for _ in range(generator.choice((1, 2, 8))):
            bytes_[generator.randrange(len(bytes_))] = generator.choice((0, 1, 0x7F, 0xFF, generator.randrange(256)))
        file.write_bytes(
            bytes(bytes_[: generator.choice((len(whole), len(whole), generator.randrange(len(whole)))) or 1])
        )
        try:
            with SharedObject(file) as library:
                assert isinstance(library.needed, list)
                assert isinstance(library.undefined(("_ZN",)), set)
                assert library.offers("one") in (True, False, None)
        except NotElfError:
            refused += 1
    assert 0 < refused < 1000


def test_without_the_version_of_torch_no_other_torchvision_is_installed() -> None:
    """The newest torchvision would come, and the newest torch with it."""
    error = "RuntimeError: operator torchvision::nms does not exist"
    finding = only(reported({}, error), "built-for-another-torch")
    commands.add(reported({}, error), [finding])
    assert finding.commands == [] and "torch 2.N has torchvision 0.(N+15)" in finding.remedy[0]


@pytest.mark.parametrize(("torch", "vision", "audio"), [("2.8.0", "0.23", "2.8"), ("1.13.1", "0.14", "0.13")])
def test_each_torch_has_a_torchvision_and_a_torchaudio(torch: str, vision: str, audio: str) -> None:
    assert (cuda.torch_family("torchvision", torch), cuda.torch_family("torchaudio", torch)) == (vision, audio)


def test_the_torch_that_a_framework_pins_beside_an_extension() -> None:
    error = "ImportError: \n[sgl_kernel] CRITICAL: Could not load any common_ops library!"
    case = reported({"torch": "2.10.0"}, error)
    finding = only(case, "built-for-another-torch")
    assert (finding.confidence, finding.packages) == ("possible", {"sgl-kernel": None, "torch": "2.10.0"})
    assert finding.decide == ["which sgl-kernel is installed"]
    assert finding.commands == ["uv pip install --torch-backend=auto torch==2.9.1"]
    assert finding.remedy[0].startswith("torch==2.9.1, which sglang 0.5.")
    # The pair that a framework pins fits.
    fitting = only(reported({"torch": "2.9.1", "sgl-kernel": "0.3.21"}, error), "built-for-another-torch")
    assert fitting.commands == []


SYMBOLS = "ImportError: /site/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2E"


@pytest.mark.parametrize(
    ("packages", "confidence", "command"),
    [
        ({"torch": "2.8.0", "flash-attn": "2.7.4"}, "likely", "'flash-attn>=2.8.3,<=2.8.3.post1'"),
        ({"torch": "2.8.0"}, "possible", "'flash-attn>=2.8.3,<=2.8.3.post1'"),
        ({"flash-attn": "2.7.4"}, "possible", "flash-attn"),
        # Its wheel is for this torch, so it may have been installed for an earlier one; the same again is no advice.
        ({"torch": "2.8.0", "flash-attn": "2.8.3"}, "possible", "'flash-attn>=2.8.3,<=2.8.3.post1,!=2.8.3'"),
    ],
)
def test_an_undefined_symbol_alone_is_likely_only_where_both_versions_are_known_and_do_not_fit(
    packages: dict[str, str], confidence: str, command: str
) -> None:
    finding = only(reported(packages, SYMBOLS), "built-for-another-torch")
    assert (finding.confidence, bool(finding.decide)) == (confidence, confidence == "possible")
    assert finding.commands[0].endswith(f" {command}")
