"""A run certificate against the records of its run: run.json, which starts it, and monitor.json, which ends it.

The certificate says again what the records say: so each of its fields must be what they say, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from builder.base import text
from builder.publish.runstatement import Predicate, RunResource, Table

RUN, SUMMARY = "run.json", "monitor.json"
ROWS = "monitor*.jsonl"
RECORDS = ("config.yaml", RUN, "metrics.jsonl", SUMMARY)
NOTHING = "nothing to judge in the steps that ran"
IMAGE = re.compile(r"(.*)@sha256:([0-9a-f]{64})")
# As runtime/monitor/certificate.py chooses them: the last model, in the folder itself or in its last checkpoint.
WEIGHTS = re.compile(r"(model|adapter_model|pytorch_model).*\.(safetensors|bin)|(adapter_)?config\.json")
CHECKPOINT = re.compile(r"checkpoint-([0-9]{1,18})")
LONGEST = 300  # characters of what a certificate or a record says, in a doubt


class TwiceError(ValueError):
    """A key comes twice: two programs may read two values."""


def names(folder: Path) -> Iterator[str]:
    """The files in the folder of a run that its certificate must be about."""
    yield from (name for name in RECORDS if (folder / name).is_file())
    yield from sorted(path.name for path in folder.glob(ROWS))
    weights = sorted(_weights(folder))
    last = max((path for path in folder.iterdir() if _number(path) >= 0), key=_number, default=None)
    if last is not None and not any(name.endswith((".safetensors", ".bin")) for name in weights):
        weights = [f"{last.name}/{name}" for name in sorted(_weights(last))]
    yield from weights


def _weights(folder: Path) -> Iterator[str]:
    return (path.name for path in folder.iterdir() if path.is_file() and WEIGHTS.fullmatch(path.name))


def _number(path: Path) -> int:
    match = CHECKPOINT.fullmatch(path.name)
    return int(match[1]) if match and path.is_dir() else -1


def load(content: str) -> Any:
    """JSON as the run wrote it, with its infinities. Raises ValueError, or TwiceError."""
    try:
        return json.loads(content, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise TwiceError("a key comes twice")
    return document


def doubts(records: Mapping[str, bytes], predicate: Predicate, table: Table) -> Iterator[str]:
    """What the certificate says otherwise than the records. `records`: run.json, if there is one, and monitor.json."""
    documents: dict[str, dict[str, Any]] = {RUN: {}}
    for name, content in records.items():
        try:
            documents[name] = load(content.decode())
            if not isinstance(documents[name], dict):
                raise ValueError("no object")
        except TwiceError:
            yield f"{name} has a key twice: programs differ on what it says"
            return
        except ValueError:
            yield f"{name} is no JSON"
            return
    if SUMMARY not in documents:
        yield f"{SUMMARY} is not there: what the run was, and how its monitor ended"
        return
    try:
        yield from _described(predicate, list(_resources(documents[RUN], documents[SUMMARY])))
        yield from _judged(predicate, documents[SUMMARY], table)
    except (KeyError, TypeError, AttributeError, ValidationError):
        yield f"{SUMMARY} is not as a monitor writes it"


def _resources(run: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterator[tuple[str, RunResource]]:
    """What the records say of the run, each with the record."""
    if match := IMAGE.fullmatch(str(run.get("image") or "")):
        annotations = {"role": "image", "stack": run.get("stack")}
        yield RUN, RunResource(name=match[1], digest={"sha256": match[2]}, annotations=annotations)
    else:
        reason = "it did not run in an image whose digest was given to it"
        yield RUN, RunResource(name="image", annotations={"reason": reason})
    arguments = hashlib.sha256(json.dumps(summary["arguments"], sort_keys=True).encode()).hexdigest()
    model, data = summary["model"], summary["data"]
    described = {**model, "digest of": "its configuration; the weights are not hashed"}
    rest = {name: value for name, value in data.items() if name != "sha256"}
    resources = (
        RunResource(name="arguments", digest={"sha256": arguments}),
        RunResource(name="model", digest=_digest(model, "config"), annotations=described),
        RunResource(name="data", digest=_digest(data, "sha256"), annotations=rest),
        RunResource(name="hardware", annotations=summary["machine"]),
        RunResource(name="versions", annotations=summary["versions"]),
        RunResource(name="monitor", annotations={"share_of_time": summary["share_of_time"]}),
    )
    yield from ((SUMMARY, resource) for resource in resources)


def _digest(document: Mapping[str, Any], name: str) -> dict[str, str] | None:
    return {"sha256": document[name]} if name in document else None


def _described(predicate: Predicate, expected: list[tuple[str, RunResource]]) -> Iterator[str]:
    claimed = predicate.configuration
    if len(claimed) != len(expected):
        yield f"it describes {len(claimed)} things of the run, and its records {len(expected)}"
        return
    for number, ((record, true), claim) in enumerate(zip(expected, claimed, strict=True)):
        kind = true.name if number else "image"
        # The digest of the monitor is that of its bounds, which this project's are compared with.
        here = claim.model_copy(update={"digest": None}) if kind == "monitor" else claim
        if here != true or _canonical(here.annotations) != _canonical(true.annotations):
            yield f"{kind}: it says {_shown(here)}, and {record} says {_shown(true)}"


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)  # 1, 1.0 and true are equal to Python


def _shown(resource: RunResource) -> str:
    parts = [resource.name, *([resource.sha256] if resource.sha256 else [])]
    return text.line(" ".join([*parts, _canonical(resource.annotations)] if resource.annotations else parts), LONGEST)


def _judged(predicate: Predicate, summary: Mapping[str, Any], table: Table) -> Iterator[str]:
    """The outcome of every check, what the monitor could not see, and whether it failed."""
    if predicate.monitorFailure != summary["failure"]:
        failure = text.line(predicate.monitorFailure, LONGEST)
        claim = f"that the monitor failed: {failure}" if failure else "that the monitor did not fail"
        yield f"it says {claim}, and {SUMMARY} says: {text.line(str(summary['failure']), LONGEST) or 'it did not'}"
    outcomes, absent = summary["outcomes"], summary["absent"]
    claimed = {**dict.fromkeys(predicate.notRun, "not-run"), **{c.name: c.outcome for c in predicate.checks}}
    for row in table.rows:
        outcome, true = claimed.get(row.name, "nothing"), str(outcomes.get(row.name, "nothing"))
        if outcome != true:
            yield f"{row.name}: it says {outcome}, and {SUMMARY} says {text.line(true, LONGEST)}"
        reason = absent.get(row.needs) or NOTHING
        if (claim := predicate.notRun.get(row.name, reason)) != reason:
            claim, reason = text.line(claim, LONGEST), text.line(str(reason), LONGEST)
            yield f"{row.name}: it says that it does not apply: {claim}; by its records: {reason}"
    unseen = (*table.blind, *map(str, summary.get("blind", ())))
    yield from _unseen(predicate, (*unseen, *(f"{name}: {why}" for name, why in predicate.notRun.items())))


def _unseen(predicate: Predicate, blind: Iterable[str]) -> Iterator[str]:
    for spot in blind:
        if spot not in predicate.blindSpots:
            yield f"it leaves out what the monitor cannot see: {text.line(spot, LONGEST)}"
