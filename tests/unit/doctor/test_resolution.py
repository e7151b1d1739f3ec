"""Resolvers that find no solution."""

from __future__ import annotations

import pytest

from doctor.answer import diagnose
from tests.unit.doctor.kit import reported

PIP = """\
ERROR: Cannot install torch==2.7.0 and vllm==0.8.5 because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested torch==2.7.0
    vllm 0.8.5 depends on torch==2.6.0
"""
UV = """  × No solution found when resolving dependencies:
  ╰─▶ Because vllm==0.8.5 depends on torch==2.6.0 and you require
      vllm==0.8.5, we can conclude that you require torch==2.6.0.
      And because you require torch==2.7.0, we can conclude that your
      requirements are unsatisfiable.
"""
SAME = """The conflict is caused by:
    The user requested x==1
    The user requested (constraint) x==2
ERROR: ResolutionImpossible
"""
OLD_PIP = """\
ERROR: Ignored the following versions that require a different python version: 1.16.0 Requires-Python >=3.10
ERROR: Could not find a version that satisfies the requirement trl==1.16.0 (from versions: 0.11.4)
"""
OLD_UV = """\
  ╰─▶ Because the current Python version (3.8.10) does not satisfy Python>=3.9
      and vllm==0.8.5 depends on Python>=3.9,<3.13, your requirements are unsatisfiable.
"""
PACKAGES = """The conflict is caused by:
    trl 1.16.0 depends on transformers>=4.56.2
    vllm 0.8.4 depends on transformers<4.52
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io
"""


@pytest.mark.parametrize("log", [PIP, UV])
def test_a_later_release_that_requires_what_the_user_does_comes_first(log: str) -> None:
    finding = diagnose.findings(reported({}, log))[0]
    assert (finding.rule, finding.confidence) == ("no-solution", "likely")
    assert finding.title == "vllm 0.8.5 requires torch==2.6.0, and you require torch==2.7.0"
    assert finding.remedy == ["vllm==0.9.0 and torch==2.7.0", "vllm==0.8.5 and torch==2.6.0"]
    # What a resolver quotes is no advice.
    assert "demanded" not in {each.rule for each in diagnose.findings(reported({"torch": "2.8.0"}, log))}


def test_of_two_packages_one_is_upgraded_rather_than_the_other_taken_back() -> None:
    finding = diagnose.findings(reported({}, PACKAGES))[0]
    assert finding.title == "trl 1.16.0 requires transformers>=4.56.2, and vllm 0.8.4 requires transformers<4.52"
    first, second = finding.ways
    assert first["transformers"] == ">=4.56.2" and second["transformers"] == "<4.52"


@pytest.mark.parametrize(
    "log",
    [
        PIP.replace("torch==2.7.0", "torch>=2.6"),  # both can be had
        PIP.replace("conflicting dependencies", "trouble"),  # no resolver says so
        SAME,
    ],
)
def test_demands_that_can_be_met_and_those_of_the_user_alone_are_no_conflict(log: str) -> None:
    assert "no-solution" not in {finding.rule for finding in diagnose.findings(reported({}, log))}


def test_only_uv_says_that_the_python_is_at_fault() -> None:
    finding = diagnose.findings(reported({}, OLD_UV))[0]
    title = "the releases that were asked for need Python >=3.9, and 3.8.10 runs"
    assert (finding.rule, finding.title) == ("other-python", title)
    # pip lists the releases for another Python of every package that it looked at.
    for log in (OLD_PIP, OLD_UV.replace("3.8.10", "3.10.1")):
        assert "other-python" not in {finding.rule for finding in diagnose.findings(reported({}, log))}


@pytest.mark.parametrize(
    "log",
    [
        UV.replace("vllm==0.8.5 depends", "all versions of vllm depend"),  # no release to go on from
        "Because your project depends on torch==2.7.0 and x==1 depends on torch==2.7.0, requirements are unsatisfiable",
        "Because trl==1.16.0 depends on Python>=3.10 and scipy==1.6 depends on Python>=3.7,<3.10: unsatisfiable",
    ],
)
def test_what_names_no_release_of_a_package_is_no_demand(log: str) -> None:
    assert "no-solution" not in {finding.rule for finding in diagnose.findings(reported({}, log))}


def test_every_line_about_a_package_counts_and_those_of_extras_do_not() -> None:
    log = "    trl 0.23.0 depends on transformers>=4.56.1\n    The user requested transformers==4.51.3\nunsatisfiable\n"
    assert {"trl": "==0.19.1", "transformers": "==4.51.3"} in diagnose.findings(reported({}, log))[0].ways
    log = log.replace("unsat", "    The user requested vllm==0.6.0\nunsat")
    assert {"trl": "==0.19.1", "transformers": "==4.51.3"} in diagnose.findings(reported({}, log))[0].ways


def test_a_list_of_what_was_tried_is_no_certain_conflict() -> None:
    log = PACKAGES.replace("ERROR", "    trl 0.15.0 depends on transformers>=4.46.0\nERROR")
    assert diagnose.findings(reported({}, log))[0].confidence == "possible"
