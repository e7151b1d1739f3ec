"""Statements for the tests of a policy: what may run, and what may not, each a change of a good certificate."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from builder.certify import certificate
from builder.certify.certificate import LIFETIME

Change = Callable[[Any], None]
DAY = datetime.timedelta(days=1)


def _set(key: str, value: object) -> Change:
    return lambda statement: statement["predicate"].__setitem__(key, value)


def _dates(age: datetime.timedelta, lifetime: datetime.timedelta = LIFETIME) -> Change:
    def change(statement: Any) -> None:
        issued = certificate.today() - age
        statement["predicate"].update(issued=str(issued), expires=str(issued + lifetime))

    return change


def _probe(**fields: object) -> Change:
    return lambda statement: statement["predicate"]["probes"][0].update(fields)


def _number(**fields: object) -> Change:
    return lambda statement: statement["predicate"]["probes"][0]["measurements"][0].update(fields)


def resource(statement: Any, name: str) -> Any:
    (entry,) = [entry for entry in statement["predicate"]["configuration"] if entry["name"] == name]
    return entry


def _digest(name: str) -> Change:
    return lambda statement: resource(statement, name)["digest"].update(sha256="4" * 64)


def _without(name: str) -> Change:
    return lambda statement: statement["predicate"]["configuration"].remove(resource(statement, name))


def _machine(**fields: object) -> Change:
    return lambda statement: resource(statement, "hardware").__setitem__("annotations", fields)


def _on_a_host(statement: Any) -> None:
    _without("inputs")(statement)
    resource(statement, "engine")["annotations"]["name"] = "host"


def _second_subject(statement: Any) -> None:
    statement["subject"].append({"name": "another", "digest": {"sha256": "5" * 64}})


def _differences(statement: Any) -> None:
    statement["predicate"]["configuration"].append({"name": "differences", "annotations": {"torch": "2.0"}})


def _dates_deleted(statement: Any) -> None:
    del statement["predicate"]["issued"], statement["predicate"]["expires"]


def _nothing_passed(statement: Any) -> None:
    for probe in statement["predicate"]["probes"]:
        probe.update(outcome="not-run", reason="needs 8 GPU(s), found 0", measurements=[])
    statement["predicate"].update(passedTests=[], notRun={"alpha": "no", "beta": "no"})


def _failed(statement: Any) -> None:
    statement["predicate"].update(result="FAILED", passedTests=["alpha"], failedTests=["beta"])
    statement["predicate"]["probes"][1].update(outcome="failed", reason="the reward fell")


GOOD: dict[str, Change] = {
    "as it was issued": lambda _: None,
    "on its last day": _dates(LIFETIME),
    "a number on its bound": _number(value=0.5),
    "a suite of an earlier commit": _digest("suite"),
}
BAD: dict[str, Change] = {
    "failed": _failed,
    "failed, by its result alone": _set("result", "FAILED"),
    "passed, and lists a failure": _set("failedTests", ["beta"]),
    "nothing passed": _nothing_passed,
    "a crash among the passed": _probe(outcome="crashed"),
    "lists a probe that did not run": _set("passedTests", ["alpha", "beta", "gamma"]),
    "a number above its bound": _number(value=0.51),
    "a number marked as outside": _number(ok=False),
    "a number that is text": _number(value="good"),
    "a bound that is text": _number(bound={"at_most": "much"}),
    "expired": _dates(LIFETIME + DAY),
    "issued tomorrow": _dates(-DAY),
    "lives ten years": _dates(0 * DAY, 3650 * DAY),
    "without dates": _dates_deleted,
    "dates that are no days": _set("expires", "soon"),
    "another suite": lambda statement: resource(statement, "suite")["digest"].update(sha256="6" * 64),
    "without a suite": _without("suite"),
    "earned on a host": _on_a_host,
    "not of the lock": _differences,
    "two subjects": _second_subject,
    "another digest": lambda statement: statement["subject"][0]["digest"].update(sha256="7" * 64),
    "other hardware": _machine(**{"class": "Intel Xeon, 8 cores", "cpu": "Intel Xeon", "cores": 8}),
    "a part of a word of the hardware": _machine(**{"class": "Cyrix Testing, 1 cores", "cpu": "Cyrix", "cores": 1}),
    "with a GPU": lambda statement: resource(statement, "hardware")["annotations"].update(gpus=["H200"], driver="580"),
    "a lock that the policy withdraws": lambda statement: resource(statement, "lock")["digest"].update(sha256="8" * 64),
    "a lock with an advisory": lambda statement: resource(statement, "lock")["digest"].update(sha256="9" * 64),
    "a later advisory against what passed": lambda statement: resource(statement, "lock")["digest"].update(
        sha256="a" * 64
    ),
}  # fmt: skip
