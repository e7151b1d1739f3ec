"""Files that another distribution has overwritten, and ways out that what is installed forbids."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.answer import commands, diagnose
from doctor.checks import forbidden
from doctor.know.data import Api, Knowledge
from tests.unit.doctor.kit import install, of, only, reported

GONE = (
    "ImportError: cannot import name 'check_peft_version' from 'transformers.utils' (/v/transformers/utils/__init__.py)"
)


@pytest.mark.parametrize(
    ("packages", "confidence"),
    [
        ({"transformers": "4.33.3", "adapter-transformers": "3.2.1"}, "likely"),
        ({"transformers": "4.33.3"}, "possible"),
        ({"transformers": "4.30.0"}, None),  # which does not have it yet
    ],
)
def test_a_name_that_the_release_has_is_missing_where_a_fork_has_overwritten_it(
    packages: dict[str, str], confidence: str | None
) -> None:
    case = reported(packages, GONE)
    findings = {finding.rule: finding for finding in diagnose.findings(case)}
    if confidence is None:
        assert "overwritten" not in findings
        return
    first = diagnose.findings(case)[0]
    assert (first.rule, first.confidence) == ("overwritten", confidence)
    assert list(first.packages) == ["adapter-transformers", "transformers"]
    assert first.commands == [
        "uv pip uninstall adapter-transformers",
        "uv pip install --reinstall-package transformers transformers==4.33.3",
    ]


def test_an_environment_without_the_fork_was_not_overwritten_by_it(tmp_path: Path) -> None:
    install(tmp_path, "transformers", "4.40.0")
    assert not [finding for finding in diagnose.findings(of(tmp_path, error=GONE)) if finding.rule == "overwritten"]


def test_a_release_that_a_stated_package_forbids_is_no_way_out(tmp_path: Path) -> None:
    """transformers 4.50 needs huggingface-hub<1.0, stated as a list of versions or read from its metadata."""
    error = "ImportError: cannot import name 'HfUri' from 'huggingface_hub' (/v/huggingface_hub/__init__.py)"
    free = reported({"huggingface-hub": "0.30.0"}, error)
    bound = reported({"huggingface-hub": "0.30.0", "transformers": "4.50.0"}, error)
    for case, forbidden_ in ((free, False), (bound, True)):
        finding = only(case, "moved-name")
        commands.add(case, [finding])
        assert bool(finding.commands) is not forbidden_, finding.commands
        assert any("no way out" in line for line in finding.evidence) is forbidden_
    assert forbidden.by(bound, "huggingface-hub", ">=1.0") == "transformers 4.50.0 needs huggingface-hub<1.0,>=0.26.0"
    install(tmp_path, "reader", "1.0", requires=["huggingface_hub<0.20"])
    assert forbidden.by(of(tmp_path), "huggingface-hub", ">=0.23") == "reader 1.0 needs huggingface-hub<0.20"
    assert forbidden.by(of(tmp_path), "huggingface-hub", ">=0.19") == ""


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, "a 1.0 needs b<2, which does not go with c>=5"),
        ({"b": "1.0"}, "b 1.0 needs c<5"),
        ({"b": "3.0"}, ""),  # what is there decides, not what should be
    ],
)
def test_what_is_needed_by_what_is_stated_forbids_too(stated: dict[str, str], expected: str) -> None:
    case = reported({"a": "1.0", **stated})
    needs = {"a": {"1.0": ["b<2"]}, "b": {"1.0": ["c<5"], "1.1": ["c<4"], "3.0": ["c"]}}
    case.knowledge = Knowledge(apis={name: Api({}, releases) for name, releases in needs.items()})
    assert forbidden.by(case, "c", ">=5") == expected
    assert forbidden.by(case, "c", ">=3") == ""
    assert forbidden.by(case, "c", ">=4.5") == ""  # one release of b may be there that allows it
