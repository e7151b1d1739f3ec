"""Certifying: what a suite's runner says or fails to say, and what is written in the end."""

from __future__ import annotations

import dataclasses
import datetime
import json
import multiprocessing
import os
import sys
from pathlib import Path

import pytest

from builder import cli
from builder.base import machine, sources
from builder.certify import certificate, certify, hostenv
from builder.certify.certify import Certification, Options
from tests.conftest import BAD_RUN, GOOD_RUN, PYTHON, TINY, Small

HOST = Options("cpu", "host")


@pytest.fixture
def certified(small: Small) -> Small:
    """A stack whose environment is here, with the certificate that today's suite earned on this machine."""
    hostenv.path(small.project, small.lock).mkdir(parents=True)
    small.issue()
    return small


def reused(small: Small, request: Options = HOST) -> Certification | None:
    return certify.certified(small.project, small.lock, request)


def test_the_same_subject_suite_and_hardware_are_certified_already(certified: Small) -> None:
    outcome = reused(certified)
    assert outcome is not None
    assert (outcome.reused, outcome.report) == (True, None)
    assert outcome.certificate == certificate.path(certified.project, TINY, "cpu", "host")
    assert outcome.statement == certificate.read(outcome.certificate)


@pytest.mark.parametrize(
    "request_", [Options("cpu", "host", force=True), Options("cpu", "host", ("alpha",)), Options("cpu", "docker")]
)
def test_who_asks_for_more_gets_a_run(certified: Small, request_: Options) -> None:
    assert reused(certified, request_) is None


def test_a_subject_that_is_not_here_is_not_certified_already(certified: Small) -> None:
    hostenv.path(certified.project, certified.lock).rmdir()
    assert reused(certified) is None


def test_another_suite_is_not_certified_already(certified: Small) -> None:
    certified.suite(GOOD_RUN + "# another line\n")
    assert reused(certified) is None


def test_another_lock_is_not_certified_already(certified: Small) -> None:
    certified.edit("lock.toml", "1700000000", "1700000001")
    hostenv.path(certified.project, certified.lock).mkdir()
    assert reused(certified) is None


@pytest.mark.parametrize("hardware", ["Another CPU, 4 cores", "Some CPU, 1 cores"])
def test_other_hardware_is_not_certified_already(certified: Small, hardware: str) -> None:
    path = certificate.path(certified.project, TINY, "cpu", "host")
    here = machine.hardware("cpu").hardware_class
    text = path.read_text()
    assert text.count(json.dumps(here)) == 1
    path.write_text(text.replace(json.dumps(here), json.dumps(hardware)))
    assert reused(certified) is None


def test_certifying_again_mends_a_damaged_certificate(certified: Small) -> None:
    certificate.path(certified.project, TINY, "cpu", "host").write_text("{")
    assert reused(certified) is None


def test_an_expired_certificate_does_not_spare_a_run(certified: Small) -> None:
    certified.issue(day=certificate.today() - certificate.LIFETIME)
    assert reused(certified) is not None
    certified.issue(day=certificate.today() - certificate.LIFETIME - datetime.timedelta(days=1))
    assert reused(certified) is None


def test_a_certificate_without_dates_does_not_spare_a_run(certified: Small) -> None:
    path = certified.issue()
    data = json.loads(path.read_text())
    del data["predicate"]["issued"], data["predicate"]["expires"]
    path.write_text(json.dumps(data))
    assert reused(certified) is None


def run(small: Small, request: Options = HOST) -> Certification:
    """Install the lock from its wheelhouse with the real uv, and run the suite in that environment."""
    return certify.run(small.project, small.lock, request, small.scratch(), lambda _: None, lambda _: None)


def test_a_run_that_passes_writes_the_certificate_and_is_reused(wheels: Small) -> None:
    outcome = run(wheels)
    path = certificate.path(wheels.project, TINY, "cpu", "host")
    assert (outcome.certificate, outcome.report, outcome.reused) == (path, None, False)
    statement = certificate.read(path)
    assert statement == outcome.statement
    assert statement.predicate.issued == certificate.today()
    assert statement.lapsed(certificate.today()) is None
    assert statement.predicate.passedTests == ["alpha", "beta"]
    subject = statement.subject[0]
    assert subject == certificate.Resource(name=f"lockfiles/{TINY}", digest=certificate.bare(wheels.lock.digest))
    assert statement.resource("suite").digest == certificate.bare(sources.digest(wheels.project.smoke))
    again = run(wheels)
    assert (again.reused, again.statement) == (True, statement)
    assert run(wheels, Options("cpu", "host", force=True)).reused is False


def test_two_at_once_wait_for_each_other(wheels: Small, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    note = f"with open({str(journal)!r}, 'a') as journal:\n    print({{!r}}, file=journal)\n"
    wheels.suite(note.format("begin") + "import time; time.sleep(0.3)\n" + GOOD_RUN + note.format("end"))

    def certify_in_child() -> None:
        os.chdir(wheels.root)
        sys.argv = ["vetted", "certify", TINY, "--engine", "host", "--force"]
        cli.main()

    fork = multiprocessing.get_context("fork")  # with the patches of the fixture
    children = [fork.Process(target=certify_in_child) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert journal.read_text().split() == ["begin", "end"] * 2


def test_the_suite_runs_in_the_stacks_own_patched_environment(wheels: Small) -> None:
    wheels.suite(
        "import sysconfig, tiny_lib\n"
        'assert tiny_lib.greeting == "somebody", tiny_lib.greeting\n'
        'assert tiny_lib.__file__.startswith(sysconfig.get_path("purelib")), tiny_lib.__file__\n'
        'assert ".vetted" in sys.prefix, sys.prefix\n' + GOOD_RUN
    )
    assert run(wheels).statement.predicate.result == "PASSED"


NOTHING_RAN = GOOD_RUN.replace('a")', 'a", "not-run", reason="needs a GPU")')


@pytest.mark.parametrize("script", [BAD_RUN, GOOD_RUN.replace('end("beta")', "sys.exit(1)"), NOTHING_RAN])
def test_a_run_that_fails_writes_a_report_and_leaves_the_certificate_alone(wheels: Small, script: str) -> None:
    path = wheels.issue()
    before = path.read_bytes()
    wheels.suite(script)
    outcome = run(wheels, Options("cpu", "host", force=True))
    assert outcome.statement.predicate.result == "FAILED"
    assert outcome.certificate is None
    assert outcome.report == certificate.report_path(wheels.project, TINY, "cpu", "host")
    assert certificate.read(outcome.report) == outcome.statement
    assert outcome.statement.predicate.issued is None
    assert path.read_bytes() == before


def test_a_run_of_some_probes_writes_a_report_even_when_it_passes(wheels: Small) -> None:
    outcome = run(wheels, Options("cpu", "host", ("alpha", "beta")))
    assert outcome.statement.predicate.result == "PASSED"
    assert outcome.certificate is None
    assert outcome.report is not None and outcome.report.is_file()
    assert not certificate.path(wheels.project, TINY, "cpu", "host").exists()


def test_a_stack_for_gpus_earns_no_certificate_on_the_cpu(wheels: Small) -> None:
    lock = dataclasses.replace(wheels.lock, stack=wheels.lock.stack.model_copy(update={"device": "cuda"}))
    outcome = certify.run(wheels.project, lock, HOST, wheels.scratch(), lambda _: None, lambda _: None)
    assert outcome.statement.predicate.result == "PASSED"
    assert outcome.certificate is None
    assert not certificate.path(wheels.project, TINY, "cpu", "host").exists()
    assert certify.shortcoming(lock, HOST) == "the stack is made for cuda, and ran on cpu"
    assert certify.certified(wheels.project, lock, HOST) is None


def test_a_suite_edited_while_it_runs_certifies_what_ran(wheels: Small) -> None:
    edited = wheels.project.smoke / "late.py"
    wheels.suite(f"from pathlib import Path\nPath({str(edited)!r}).touch()\n" + GOOD_RUN)
    before = sources.digest(wheels.project.smoke)
    outcome = run(wheels)
    assert sources.digest(wheels.project.smoke) != before
    assert outcome.statement.resource("suite").digest == certificate.bare(before)


def test_the_certificate_names_the_stacks_python(wheels: Small) -> None:
    wheels.suite(GOOD_RUN.replace('"3.11.2"', "sys.version.split()[0]"))
    version = (run(wheels).statement.resource("python").annotations or {})["version"]
    assert str(version).startswith(PYTHON + ".")
