"""The rule as manifests for a cluster: a ClusterImagePolicy of policy-controller, and a ClusterPolicy of Kyverno."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from builder.certify import certificate
from builder.certify.certificate import LIFETIME
from builder.publish.policy import rego
from builder.publish.policy.rule import CONFIGURATION, Rule, Withdrawal

NAME = "vetted-certified"
HEADER = "# Written by `vetted policy`: do not edit.\n"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Writes text of several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _yaml(document: dict[str, Any]) -> str:
    return f"{HEADER}{yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1 << 16, allow_unicode=True)}"


def cluster_image_policy(rule: Rule) -> str:
    """For policy-controller: an image may run when one of its certificates has no doubt. YAML."""
    policy = {"type": "rego", "data": rego.render(rule, "policy-controller").replace("\t", "  ")}
    attestation = {"name": "certificate", "predicateType": certificate.PREDICATE, "policy": policy}
    authorities = [
        {"name": f"key-{number}", "key": {"data": key, "hashAlgorithm": "sha256"}, "attestations": [attestation]}
        for number, key in enumerate(_keys(rule))
    ]
    return _yaml(
        {
            "apiVersion": "policy.sigstore.dev/v1beta1",
            "kind": "ClusterImagePolicy",
            "metadata": {"name": NAME},
            "spec": {"images": [{"glob": glob} for glob in _globs(rule)], "authorities": authorities},
        }
    )


def kyverno(rule: Rule) -> str:
    """For Kyverno: an image may run when none of its certificates has a doubt. YAML."""
    keys = [
        {"keys": {"publicKeys": key, "rekor": {"ignoreTlog": True}, "ctlog": {"ignoreSCT": True}}}
        for key in _keys(rule)
    ]
    attestation = {
        "type": certificate.PREDICATE,
        "attestors": [{"count": 1, "entries": keys}],
        "conditions": [{"all": list(conditions(rule))}],
    }
    verification = {
        "imageReferences": list(_globs(rule)), "failureAction": "Enforce", "attestations": [attestation],
    }  # fmt: skip
    return _yaml(
        {
            "apiVersion": "kyverno.io/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": NAME},
            "spec": {
                "background": False,
                "webhookConfiguration": {"failurePolicy": "Fail", "timeoutSeconds": 30},
                "rules": [
                    {
                        "name": "certified",
                        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                        "verifyImages": [verification],
                    }
                ],
            },
        }
    )


def conditions(rule: Rule) -> Iterator[dict[str, Any]]:
    """The rule as Kyverno's conditions on a predicate, in its JMESPath. All must hold."""

    def holds(expression: str) -> dict[str, Any]:
        return {"key": "{{ " + expression + " }}", "operator": "Equals", "value": True}

    yield holds(f"configuration[].name == `{json.dumps(CONFIGURATION)}`")
    yield holds(f"contains(`{json.dumps(rule.suites)}`, {_digest('suite')})")
    annotations = "configuration[?name=='hardware'].annotations | [0]"
    if rule.hardware:
        texts = f"{annotations}.[class, cpu, driver, to_string(cores), gpus] | [] | [?type(@) == 'string']"
        matches = " || ".join(f"regex_match('{pattern}', to_lower(@))" for pattern in rule.patterns)
        yield holds(f"length({texts} | [?{matches}]) > `0`")
    if rule.device:
        yield holds(f"length(not_null({annotations}.gpus, `[]`)) {'>' if rule.device == 'cuda' else '=='} `0`")
    yield holds("result == 'PASSED' && length(failedTests) == `0` && length(passedTests) > `0`")
    yield holds("passedTests == probes[?outcome == 'passed'].name")
    yield holds("length(probes[?outcome != 'passed' && outcome != 'not-run']) == `0`")
    outside = (
        "ok != `true` || type(value) != 'number'"
        " || length(not_null(bound, `{}`) | values(@) | [?type(@) != 'number']) > `0`"
        " || value > bound.at_most || value < bound.at_least || (bound.equals != `null` && value != bound.equals)"
    )
    yield holds(f"length(probes[].measurements[] | [?{outside}]) == `0`")
    now, issued, expires = "time_now_utc()", _midnight("issued"), _midnight("expires")
    yield holds(f"!time_before({now}, {issued})")
    yield holds(f"time_add({issued}, '{LIFETIME.days * 24}h') == {expires}")
    yield holds(f"time_before({now}, time_add({expires}, '24h'))")
    if rule.withdrawn:
        yield holds(f"!contains(`{json.dumps(rule.withdrawn)}`, {_digest('lock')})")
    for withdrawal in rule.withdrawals:
        yield holds(f"!({_withdraws(withdrawal)})")


def _withdraws(withdrawal: Withdrawal) -> str:
    lock = f"{_digest('lock')} == '{withdrawal.lock}'"
    if not withdrawal.published:
        return lock
    earlier = f"time_before({_midnight('issued')}, '{withdrawal.published}T00:00:00Z')"
    probes = f"passedTests[?contains(`{json.dumps(withdrawal.probes)}`, @)]"
    return f"{lock} && {earlier} && length({probes}) > `0`"


def _digest(name: str) -> str:
    return f"(configuration[?name=='{name}'].digest.sha256 | [0])"


def _midnight(day: str) -> str:
    return f"join('', [{day}, 'T00:00:00Z'])"


def _globs(rule: Rule) -> Iterator[str]:
    """Every image of the repositories, by tag and by digest."""
    for repository in rule.images:
        yield from (f"{repository}:*", f"{repository}@*")


def _keys(rule: Rule) -> list[str]:
    return [path.read_text(encoding="ascii").strip() + "\n" for path in rule.keys]
