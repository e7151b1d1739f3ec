"""Evaluates Rego and Kyverno's conditions: run by uv with regopy and jmespath, one JSON document in, one out.

Rego runs twice: in OPA's own engine (opa.txt, on Python's path), and in regopy, which is rego-cpp, an implementation
beside OPA. Of Kyverno there is no package: its conditions run in Python's JMESPath, with those functions of Kyverno's
that they call.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from typing import Any

import jmespath
import opa_bindings
import regopy
from jmespath import functions

TEXT = {"types": ["string"]}


class Kyverno(functions.Functions):  # type: ignore[misc]
    @functions.signature(TEXT, TEXT)  # type: ignore[untyped-decorator]
    def _func_regex_match(self, pattern: str, text: str) -> bool:
        return re.search(pattern, text) is not None

    @functions.signature(TEXT)  # type: ignore[untyped-decorator]
    def _func_to_lower(self, text: str) -> str:
        return text.lower()

    @functions.signature()  # type: ignore[untyped-decorator]
    def _func_time_now_utc(self) -> str:
        return _rfc3339(datetime.datetime.now(datetime.UTC))

    @functions.signature(TEXT, TEXT)  # type: ignore[untyped-decorator]
    def _func_time_add(self, time: str, duration: str) -> str:
        return _rfc3339(_time(time) + datetime.timedelta(hours=int(duration.removesuffix("h"))))

    @functions.signature(TEXT, TEXT)  # type: ignore[untyped-decorator]
    def _func_time_before(self, first: str, second: str) -> bool:
        return _time(first) < _time(second)


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")


def _rfc3339(time: datetime.datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def rego_cpp(policy: str, query: str, statement: Any) -> Any:
    """The value of a document; None where it is undefined."""
    interpreter = regopy.Interpreter()
    interpreter.add_module("policy", policy)
    interpreter.set_input(statement)
    answer = str(interpreter.query(f"answer = data.{query}"))
    return None if answer == "undefined" else json.loads(answer)["bindings"]["answer"]


def opa(policy: str, query: str, statement: Any) -> Any:
    """The same, by OPA."""
    with opa_bindings.OpaEngine() as engine:
        engine.add_policy("policy.rego", policy)
        try:
            return engine.eval_document(query, statement)
        except opa_bindings.OpaUndefinedError:
            return None


ENGINES = {"OPA": opa, "rego-cpp": rego_cpp}
QUERIES = {"cosign": "signature.allow", "policy-controller": "sigstore.isCompliant"}


def kyverno(conditions: list[dict[str, Any]], statement: Any) -> bool:
    """Whether all conditions hold; one that cannot be evaluated does not."""
    options = jmespath.Options(custom_functions=Kyverno())
    try:
        return all(
            jmespath.search(condition["key"][2:-2], statement["predicate"], options=options) == condition["value"]
            for condition in conditions
        )
    except (jmespath.exceptions.JMESPathError, ValueError):
        return False


def main() -> None:
    request = json.load(sys.stdin)
    answers = [
        {
            **{
                program: {name: engine(request[program], query, statement) for name, engine in ENGINES.items()}
                for program, query in QUERIES.items()
            },
            "kyverno": kyverno(request["kyverno"], statement),
        }
        for statement in request["statements"]
    ]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
