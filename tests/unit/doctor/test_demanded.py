"""What an error demands of versions."""

from __future__ import annotations

import pytest

from doctor.answer import diagnose
from tests.unit.doctor.kit import first, reported, rules


@pytest.mark.parametrize(
    ("error", "packages", "ranges"),
    [
        ("vllm 0.17.1 requires transformers<5,>=4.56.0, but you have transformers 5.3.0 which is incompatible.",
         {"transformers": "5.3.0", "vllm": "0.17.1"}, [">=5", "<4.56.0"]),
        ("ImportError: this needs accelerate>=0.26.0", {"accelerate": "0.20.0"}, ["<0.26.0"]),
    ],
)  # fmt: skip
def test_what_an_error_demands_is_compared(error: str, packages: dict[str, str], ranges: list[str]) -> None:
    finding = first(reported({"accelerate": "0.20.0"}, error))
    assert (finding.rule, finding.confidence, finding.packages) == ("demanded", "likely", packages)
    assert finding.ranges[next(iter(packages))] == ranges
    assert "demanded" not in rules(reported({"accelerate": "1.0"}, "ImportError: this needs accelerate>=0.26.0"))


def test_two_packages_that_must_be_alike_say_which_they_are() -> None:
    finding = first(
        reported({}, "RuntimeError: flashinfer-cubin version (0.6.1) does not match flashinfer version (0.5.3).")
    )
    assert (finding.rule, finding.confidence) == ("unlike-pair", "certain")
    assert finding.packages == {"flashinfer-cubin": "0.6.1", "flashinfer-python": "0.5.3"}
    assert finding.commands == ["uv pip install 'flashinfer-cubin==0.5.3'"]


def test_what_the_installed_release_has_was_not_removed_from_it() -> None:
    error = "`np.float_` was removed in the NumPy 2.0 release."
    assert "removed" not in {finding.rule for finding in diagnose.findings(reported({"numpy": "1.26.4"}, error))}


def test_what_pip_does_not_find_may_have_many_causes() -> None:
    finding = first(reported({}, "ERROR: No matching distribution found for unsloth_zoo>=2025.3.9"))
    assert (finding.rule, finding.confidence, finding.ranges) == (
        "not-found",
        "possible",
        {"unsloth-zoo": ["<2025.3.9"]},
    )
