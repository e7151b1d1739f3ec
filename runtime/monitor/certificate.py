"""The run certificate: an in-toto statement of what a run was and what its monitor saw. `vetted verify` checks it.

It is about the files of the run. It is not signed: it proves that the numbers lead to the verdict and belong to these
files, not who computed them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import judge, record

NAME = "run-certificate.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
PREFIX = "checkpoint-"
FILES = ("config.yaml", "run.json", "metrics.jsonl", record.SUMMARY)
WEIGHTS = re.compile(r"(model|adapter_model|pytorch_model).*\.(safetensors|bin)|(adapter_)?config\.json")
IMAGE = re.compile(r"(.*)@sha256:([0-9a-f]{64})")
# What the monitor cannot see in any run.
BLIND = (
    "whether the reward function rewards what you want",
    "kernels that are wrong in the same way in sampler and trainer",
    "gradients on their way from the log-probabilities to the weights; under DeepSpeed or FSDP also those of one rank",
    "the state of the optimizer beyond a sample of the weights that it moves",
    "steps before the monitor started, and anything after the last step",
    "whoever can write this folder can write this certificate: it is not signed",
)


def write(folder: Path) -> str | None:
    """Write the certificate of a run and return its result; None if its monitor left no summary."""
    try:
        summary = json.loads((folder / record.SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    rows = record.read(folder)
    results = judge.results(rows, summary["absent"])
    document: dict[str, Any] = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in files(folder).items()],
        "predicateType": PREDICATE,
        "predicate": {
            "result": "FAILED" if summary["failure"] else judge.verdict(results),
            "configuration": _configuration(folder, summary),
            "passedTests": _names(results, judge.PASSED),
            "warnedTests": _names(results, judge.ADVICE),
            "failedTests": _names(results, judge.ALARM),
            "notRun": {result.check.name: result.reason for result in results if result.outcome == judge.NOT_RUN},
            "checks": [_check(result) for result in results if result.outcome != judge.NOT_RUN],
            "steps": _steps(rows),
            "monitorFailure": summary["failure"],
            "blindSpots": [*BLIND, *summary.get("blind", ()), *_unseen(results)],
        },
    }
    target = folder / NAME
    partial = folder / f".{NAME}.partial"
    partial.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    partial.replace(target)
    return str(document["predicate"]["result"])


def files(folder: Path) -> dict[str, str]:
    """The files that the certificate is about, with their digests: records, and weights of the last model saved."""
    names = [name for name in FILES if (folder / name).is_file()]
    names += sorted(path.name for path in folder.glob("monitor*.jsonl"))
    weights = sorted(path.name for path in folder.iterdir() if path.is_file() and WEIGHTS.fullmatch(path.name))
    if not any(name.endswith((".safetensors", ".bin")) for name in weights) and (last := _last(folder)):
        weights = sorted(
            f"{last.name}/{path.name}" for path in last.iterdir() if path.is_file() and WEIGHTS.fullmatch(path.name)
        )
    return {name: sha256(folder / name) for name in (*names, *weights)}


def sha256(path: Path) -> str:
    """The digest of a file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _last(folder: Path) -> Path | None:
    numbered = [(path, path.name.partition("-")[2]) for path in folder.glob(f"{PREFIX}*") if path.is_dir()]
    counted = [(int(number), path) for path, number in numbered if number.isdigit()]
    return max(counted)[1] if counted else None


def _configuration(folder: Path, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        run = {}
    image = IMAGE.fullmatch(str(run.get("image") or ""))
    text = json.dumps(summary["arguments"], sort_keys=True)
    data, model = summary["data"], summary["model"]
    resources: list[dict[str, Any]] = [
        {"name": image[1], "digest": {"sha256": image[2]}, "annotations": {"role": "image", "stack": run.get("stack")}}
        if image
        else {"name": "image", "annotations": {"reason": "it did not run in an image whose digest was given to it"}},
        {"name": "arguments", "digest": {"sha256": hashlib.sha256(text.encode()).hexdigest()}},
        {
            "name": "model",
            **({"digest": {"sha256": model["config"]}} if "config" in model else {}),
            "annotations": {**model, "digest of": "its configuration; the weights are not hashed"},
        },
        {
            "name": "data",
            **({"digest": {"sha256": data["sha256"]}} if "sha256" in data else {}),
            "annotations": {name: value for name, value in data.items() if name != "sha256"},
        },
        {"name": "hardware", "annotations": summary["machine"]},
        {"name": "versions", "annotations": summary["versions"]},
        {
            "name": "monitor",
            "digest": {"sha256": own_digest()},
            "annotations": {"share_of_time": summary["share_of_time"]},
        },
    ]
    return resources


def own_digest() -> str:
    """The digest of the table of checks: which bounds judged."""
    from .table import TABLE

    return hashlib.sha256(json.dumps(TABLE, sort_keys=True).encode()).hexdigest()


def _names(results: list[judge.Result], outcome: str) -> list[str]:
    return [result.check.name for result in results if result.outcome == outcome]


def _check(result: judge.Result) -> dict[str, Any]:
    worst = result.worst
    return {
        "name": result.check.name,
        "column": result.check.column,
        "outcome": result.outcome,
        "at_most": result.check.at_most,
        "worst": worst if worst is None or math.isfinite(worst) else str(worst),
        "steps": result.steps,
        "findings": result.breaches,
        **({"first": result.first} if result.first is not None else {}),
    }


def _steps(rows: list[dict[str, Any]]) -> dict[str, int]:
    steps = sorted({row["step"] for row in rows})
    return {"first": steps[0], "last": steps[-1], "judged": len(steps)} if steps else {"judged": 0}


def _unseen(results: list[judge.Result]) -> list[str]:
    return [f"{r.check.name}: {r.reason}" for r in results if r.outcome == judge.NOT_RUN]


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (result := write(Path(sys.argv[1]))):
        sys.exit("usage: python -m vetted_monitor.certificate FOLDER, of a run that its monitor has seen to the end")
    print(f"{result}: {Path(sys.argv[1]) / NAME}")
