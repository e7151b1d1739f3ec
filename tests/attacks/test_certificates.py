"""Attacks on the certificate: whatever is changed in it is refused, or is something that nobody can know again."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from builder.base.machine import Hardware
from builder.base.project import Project
from builder.certify import assessment as assessing
from builder.certify import catalogue, certificate, judgement
from builder.certify.certificate import Measurement, ProbeResult, Resource, Statement
from builder.certify.judgement import Terms
from builder.image import target
from builder.intent import advisory, stack
from builder.lock import lockfile
from tests.attacks.changes import at, meaning, others, places, put
from tests.conftest import ROOT

STACK = "trl1.16-cpu"
IMAGE = "sha256:" + "1" * 64
DAY = datetime.date(2026, 11, 22)


@pytest.fixture(scope="module")
def terms() -> Terms:
    project = Project(ROOT)
    return dataclasses.replace(judgement.terms(project, lockfile.load(project, STACK)), day=DAY)


@pytest.fixture(scope="module")
def genuine(terms: Terms) -> dict[str, Any]:
    """The certificate of a run of today's suite in which every number kept its bound, as JSON."""
    read: dict[str, Any] = json.loads(earned(terms).to_json())
    return read


@pytest.fixture(scope="module")
def few(terms: Terms) -> Terms:
    """The same with three probes: one plain, one with many bounds, one that is not run on a CPU."""
    names = ("checkpoint-resume", "gemm-sweep", "cublas-loaded")
    return dataclasses.replace(terms, probes=[probe for probe in terms.probes if probe.name in names])


@pytest.fixture(scope="module")
def short(few: Terms) -> dict[str, Any]:
    """The genuine certificate of these probes, as JSON."""
    read: dict[str, Any] = json.loads(earned(few).to_json())
    return read


def earned(terms: Terms) -> Statement:
    lock = terms.lock
    return certificate.statement(
        subject=Resource(name=target.tag(lock, terms.inputs), digest=certificate.bare(IMAGE)),
        lock=lock.digest, suite=terms.suite, inputs=terms.inputs, hardware=Hardware("Some CPU", 2),
        engine={"name": "docker", "version": "26.1", "buildkit": "v0.13", "kernel": "6.1"},
        python=f"{lock.stack.python}.2", probes=[result(probe, terms) for probe in terms.probes],
    ).dated(DAY)  # fmt: skip


def result(probe: catalogue.Probe, terms: Terms) -> ProbeResult:
    reason = next((skip.reason for skip in probe.skips if skip.applies("cpu", dict(terms.lock.versions))), None)
    if reason is not None:
        return ProbeResult(name=probe.name, matters=probe.matters, outcome="not-run", reason=reason)
    measured = []
    for bound in probe.bounds:
        value = next(iter((bound.bound or {"equals": 1.0}).values()))
        fields = {"name": bound.name, "unit": bound.unit, "bound": bound.bound, "why": bound.why}
        measured.append(Measurement.model_validate({**fields, "value": value, "headline": bound.headline}))
    return ProbeResult(
        name=probe.name, matters=probe.matters, outcome="passed", measurements=measured, seconds=1.5,
        peak_memory_mib=100.0,
    )  # fmt: skip


def accepted(document: object, terms: Terms) -> bool:
    """Would anybody take this JSON for a certificate of the image?"""
    try:
        statement = certificate.parse((json.dumps(document, indent=2) + "\n").encode())
    except (ValueError, RecursionError):
        return False
    return judgement.is_valid(statement, terms, IMAGE)


def test_the_genuine_one_is_accepted(genuine: dict[str, Any], terms: Terms) -> None:
    """The counterpart of the attacks: a judge that refuses everything would pass all of them."""
    assert accepted(genuine, terms)


def test_every_field_of_a_certificate_is_changed(short: dict[str, Any], few: Terms) -> None:
    """Each field gets up to three values of the same kind."""
    forged = 0
    for path in places(short):
        for value in others(at(short, path))[-3:]:
            document = put(short, path, value)
            forged += 1
            if accepted(document, few):
                assert meaning(document) == meaning(short), (path, value)
    assert forged > 500


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no probes": lambda predicate: predicate.update(probes=[], passedTests=[], notRun={}),
    "one probe only": lambda predicate: predicate.update(
        probes=predicate["probes"][:1], passedTests=predicate["passedTests"][:1], notRun={}
    ),
    "a probe twice": lambda predicate: predicate["probes"].append(predicate["probes"][0]),
    "probes of nobody": lambda predicate: predicate["probes"][0].update(name="looks-good"),
    "a failed probe": lambda predicate: predicate["probes"][0].update(outcome="failed"),
    "failed, and listed as passed": lambda predicate: predicate["probes"][1].update(outcome="crashed", reason="SIGFPE"),
    "a failed test listed": lambda predicate: predicate.update(failedTests=["imports"]),
    "all not run": lambda predicate: predicate.update(
        passedTests=[], notRun={probe["name"]: "no time" for probe in predicate["probes"]},
        probes=[
            {**probe, "outcome": "not-run", "reason": "no time", "measurements": []} for probe in predicate["probes"]
        ],
    ),
    "a value outside its bound": lambda predicate: predicate["probes"][0]["measurements"][0].update(value=1e9),
    "a bound loosened": lambda predicate: predicate["probes"][0]["measurements"][0].update(bound={"at_most": 1e9}),
    "a bound taken away": lambda predicate: predicate["probes"][0]["measurements"][0].pop("bound"),
    "no measurements": lambda predicate: predicate["probes"][0].update(measurements=[]),
    "not a number": lambda predicate: predicate["probes"][0]["measurements"][0].update(value="nan"),
    "expires never": lambda predicate: predicate.update(expires="9999-12-31"),
    "issued in the future": lambda predicate: predicate.update(issued="2099-01-01", expires="2099-04-01"),
    "no dates": lambda predicate: [predicate.pop("issued"), predicate.pop("expires")],
    "expired": lambda predicate: predicate.update(issued="2026-01-01", expires="2026-04-01"),
    "no hardware": lambda predicate: predicate["configuration"].pop(3),
    "eight H200": lambda predicate: predicate["configuration"][3].update(
        annotations={
            "class": "8x NVIDIA H200, driver 580", "cpu": "x", "cores": 2, "gpus": ["NVIDIA H200"] * 8, "driver": "580",
        }
    ),
    "another class of hardware": lambda predicate: predicate["configuration"][3]["annotations"].update(
        {"class": "8x H200"}
    ),
    "no engine": lambda predicate: predicate["configuration"].pop(4),
    "an engine of nobody": lambda predicate: predicate["configuration"][4]["annotations"].update(name="podman"),
    "other inputs": lambda predicate: predicate["configuration"][2].update(digest={"sha256": "2" * 64}),
    "no inputs": lambda predicate: predicate["configuration"].pop(2),
    "another lock": lambda predicate: predicate["configuration"][0].update(digest={"sha256": "2" * 64}),
    "a second lock": lambda predicate: predicate["configuration"].insert(
        1, {"name": "lock", "digest": {"sha256": "2" * 64}}
    ),
    "another suite": lambda predicate: predicate["configuration"][1].update(digest={"sha256": "2" * 64}),
    "another Python": lambda predicate: predicate["configuration"][5].update(annotations={"version": "3.12.1"}),
    "differences": lambda predicate: predicate["configuration"].append(
        {"name": "differences", "annotations": {"x": "y"}}
    ),
    "a result of nothing": lambda predicate: predicate.update(result="FAILED"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_certificate_is_forged(genuine: dict[str, Any], terms: Terms, name: str) -> None:
    """`publish` once signed every one of these, and `verify` accepted it."""
    document = copy.deepcopy(genuine)
    FORGERIES[name](document["predicate"])
    assert document != genuine
    assert not accepted(document, terms)


def test_a_certificate_of_an_older_image_of_the_same_lock_is_replayed(terms: Terms) -> None:
    """Lock and suite are today's, but the digest is of another image."""
    assert judgement.is_valid(earned(terms), terms, IMAGE)
    assert not judgement.is_valid(earned(terms), terms, "sha256:" + "2" * 64)


def test_a_run_on_a_host_stands_for_the_image(terms: Terms) -> None:
    """The lock is that of the image, but the image did not run."""
    lock = terms.lock
    statement = certificate.statement(
        subject=Resource(name=f"lockfiles/{lock.name}", digest=certificate.bare(lock.digest)),
        lock=lock.digest, suite=terms.suite, hardware=Hardware("Some CPU", 2),
        engine={"name": "host", "system": "Debian", "kernel": "6"}, python=f"{lock.stack.python}.2",
        probes=[result(probe, terms) for probe in terms.probes],
    ).dated(DAY)  # fmt: skip
    assert judgement.is_valid(statement, terms)
    assert judgement.doubts(statement, terms, IMAGE) == ["it was earned on a host, not in the image"]


@pytest.mark.parametrize("name", [name for name in stack.names(Project(ROOT)) if name != STACK])
def test_a_stack_for_gpus_is_certified_without_one(name: str) -> None:
    """Only a CPU ran, or a GPU is named but the probes that need one report none."""
    cuda = dataclasses.replace(judgement.terms(Project(ROOT), lockfile.load(Project(ROOT), name)), day=DAY)
    assert any("without a GPU" in doubt for doubt in judgement.doubts(earned(cuda), cuda))
    predicate = earned(cuda).predicate
    machine = Hardware("x", 2, ("NVIDIA H200",), "580.1")
    annotations = {"class": machine.hardware_class, "cpu": "x", "cores": 2, "gpus": ["NVIDIA H200"], "driver": "580.1"}
    resources = [
        resource.model_copy(update={"annotations": annotations}) if resource.name == "hardware" else resource
        for resource in predicate.configuration
    ]
    predicate = predicate.model_copy(update={"configuration": resources})
    doubts = judgement.doubts(earned(cuda).model_copy(update={"predicate": predicate}), cuda)
    assert any(
        doubt.startswith("cublas-loaded: it was not run for a reason that does not hold here") for doubt in doubts
    )


def test_a_certain_advisory_is_older_than_the_certificate(terms: Terms) -> None:
    """The fault was known before the run, and no probe saw it."""
    torch = terms.lock.versions["torch"]
    older = advisory.Advisory.model_validate({
        "id": "VETTED-9001", "summary": "wrong", "details": "wrong", "severity": "silent-wrong",
        "published": datetime.date(2020, 1, 1), "affected": [{"packages": {"torch": f"=={torch}"}}],
        "fix": [{"note": "another torch"}], "evidence": {"kind": "executed", "says": "it is"},
        "references": [{"type": "REPORT", "url": "https://github.com/x/y"}],
    })  # fmt: skip
    (doubt,) = judgement.doubts(earned(terms), dataclasses.replace(terms, advisories=[older]), IMAGE)
    assert doubt.startswith("withdrawn by VETTED-9001")


def test_one_thing_is_written_in_two_ways(terms: Terms) -> None:
    """A key twice, in another case, escaped, or spread over lines: readers see different content."""
    genuine = earned(terms).to_json()
    assert judgement.is_valid(certificate.parse(genuine.encode()), terms, IMAGE)
    ways = [
        genuine.replace('"result": "PASSED"', '"result": "FAILED",\n    "result": "PASSED"'),
        genuine.replace('"result": "PASSED"', '"RESULT": "FAILED",\n    "result": "PASSED"'),
        genuine.replace('"result"', '"resul\\u0074"'),
        genuine.replace('"expires": ', '"expires":  '),
        genuine.replace("100.0", "1e2"),
        "\ufeff" + genuine,
        genuine + " ",
        json.dumps(json.loads(genuine)),
    ]
    for way in ways:
        assert way != genuine
        with pytest.raises(ValueError, match=r"(?i)not written as this tool writes it|extra|json"):
            certificate.parse(way.encode())


# --- ten thousand --------------------------------------------------------------------------------------------------


@pytest.mark.engine  # half a minute
@seed(20261122)
@settings(max_examples=10_000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_ten_thousand_changed_certificates(few: Terms, short: dict[str, Any], data: st.DataObject) -> None:
    """Up to three fields change at once: an accepted certificate has the same meaning."""
    document: Any = short
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(document)[1:] or [()]))
        document = put(document, path, data.draw(st.sampled_from(others(at(document, path)))))
        if not isinstance(document, dict):
            break
    if accepted(document, few):
        assert meaning(document) == meaning(short)


@seed(20261122)
@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_genuine_certificate_is_refused(few: Terms, short: dict[str, Any], data: st.DataObject) -> None:
    """For any machine, any day and any numbers within their bounds."""
    document = copy.deepcopy(short)
    hardware = Hardware(
        data.draw(st.sampled_from(["AMD EPYC 7763", "Intel(R) Xeon(R) @ 2.20GHz"])), data.draw(st.integers(1, 512))
    )
    document["predicate"]["configuration"][3]["annotations"] = {
        "class": hardware.hardware_class, "cpu": hardware.name, "cores": hardware.cores,
    }  # fmt: skip
    age = data.draw(st.integers(0, certificate.LIFETIME.days))
    issued = DAY - datetime.timedelta(days=age)
    document["predicate"].update(issued=str(issued), expires=str(issued + certificate.LIFETIME))
    for probe in document["predicate"]["probes"]:
        probe.update(seconds=data.draw(st.floats(0, 60)), peak_memory_mib=data.draw(st.floats(0, 20_000)))
        for measurement in probe["measurements"]:
            ((kind, limit),) = measurement["bound"].items()
            slack = data.draw(st.floats(0, 1e6))
            measurement["value"] = {"equals": limit, "at_most": limit - slack, "at_least": limit + slack}[kind]
    assert accepted(document, few)


def test_every_committed_certificate_holds() -> None:
    """Or it is from a GPU, of an earlier suite or image. An expired certificate does not turn the tests red."""
    project = Project(ROOT)
    for name in stack.names(project):
        terms = judgement.terms(project, lockfile.load(project, name))
        for where, statement in certificate.of_stack(project, name).items():
            assessment = assessing.summary(where, b"", statement, terms)
            earlier = assessment.gpus and assessment.earlier
            holds = earlier or assessment.standing(terms.day) == []
            assert holds, f"{name} {where}: vetted certify {name}, or remove the certificate"
