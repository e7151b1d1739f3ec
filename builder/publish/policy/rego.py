"""The rule as Rego: for `cosign verify-attestation --policy`, and for a ClusterImagePolicy of policy-controller."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal

import jinja2

from builder.certify import certificate
from builder.publish.policy.rule import CONFIGURATION, Rule

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("builder.publish.policy"), undefined=jinja2.StrictUndefined, trim_blocks=True,
    keep_trailing_newline=True, autoescape=False,  # Rego's strings are those of JSON
)  # fmt: skip

# What each program queries. cosign prints no reason; policy-controller prints `error`.
COSIGN = """
default allow := false

allow if count(doubts) == 0
"""
POLICY_CONTROLLER = """
isCompliant := [{"result": true}] if count(doubts) == 0
else := [{"result": false, "error": concat("; ", sort(doubts))}]
"""
PROGRAMS = {"cosign": ("signature", COSIGN), "policy-controller": ("sigstore", POLICY_CONTROLLER)}


def render(rule: Rule, program: Literal["cosign", "policy-controller"]) -> str:
    """The rule for a program."""
    package, answer = PROGRAMS[program]
    return _TEMPLATES.get_template("rule.rego.j2").render(
        package=package,
        answer=answer,
        suites=_json(rule.suites),
        hardware=_json(rule.patterns),
        device=rule.device,
        withdrawn=_json(rule.withdrawn),
        withdrawals=_json([dataclasses.asdict(withdrawal) for withdrawal in rule.withdrawals]),
        configuration=json.dumps(CONFIGURATION),
        predicate=certificate.PREDICATE,
        lifetime=certificate.LIFETIME.days,
    )


def _json(value: object) -> str:
    return json.dumps(value, indent="\t", ensure_ascii=False)
