"""What the documents show of the code and the certificates: generated, committed, checked."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from builder.base import errors, reading, sources
from builder.base.project import Project, write
from builder.base.text import code, markdown
from builder.certify import catalogue, certificate, judgement
from builder.image import target
from builder.intent import stack
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.pages import evidence, knowledge, weight

COLUMNS = ("trl", "vllm", "torch", "transformers", "deepspeed", "bitsandbytes")


def _inputs(project: Project, lock: Lock) -> str:
    """The digest of what an image of this lock would be made of today."""
    return target.inputs_of(project, lock)


def certified_where(project: Project, lock: Lock, day: datetime.date | None = None) -> list[str]:
    """Every place where a certificate holds of today's lock, suite and image; with a day, what has expired says so.

    Documents are of no day: what they show of the same files is the same tomorrow.
    """
    statements = certificate.of_stack(project, lock.name).values()
    if not statements:
        return []
    terms, places = judgement.terms(project, lock), []
    for statement in statements:
        last = min(statement.predicate.expires or terms.day, terms.day)
        if not judgement.against(statement, dataclasses.replace(terms, day=last)):
            what = "image" if statement.resource(certificate.INPUTS).digest else "lock"
            lapsed = day and statement.lapsed(day)
            places.append(f"{statement.hardware} ({what})" + (f", {lapsed}" if lapsed else ""))
    return places


def versions(lock: Lock) -> dict[str, str]:
    return {
        column: next((lock.versions[n] for n in (column, f"{column}-cpu") if n in lock.versions), "–")
        for column in COLUMNS
    }


def matrix(project: Project) -> str:
    rows = [f"| stack | {' | '.join(COLUMNS)} | certified on |", "|" + "---|" * (len(COLUMNS) + 2)]
    for name in stack.names(project):
        lock = lockfile.load(project, name)
        where = "<br>".join(map(markdown, certified_where(project, lock))) or "**not certified**"
        cells = [f"`{name}`", *versions(lock).values(), where]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def probes(project: Project) -> str:
    """Every probe: what it asks, its headline, and over how many runs of the certified stack that stayed good."""
    alarms = evidence.read(project, "false-alarms") or {}
    rows = ["| probe | asks | the number that matters | bound | measured | seconds |", "|---|---|---|---|---|---|"]
    for probe in _catalogue(project):
        headline = next(bound for bound in probe["bounds"] if bound["headline"])
        found = alarms.get("probes", {}).get(probe["name"], {})
        measured = {one["name"]: one for one in found.get("measurements", [])}.get(headline["name"])
        seconds = _number(found["seconds"]["median"]) if "seconds" in found else "–"
        cells = [
            code(probe["name"]), markdown(probe["asks"]), _named(headline), _limit(headline["bound"]), _range(measured),
            seconds,
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def numbers(project: Project) -> str:
    """Every number of every probe with its bound, the range that was measured, and the reason for the bound."""
    alarms = evidence.read(project, "false-alarms") or {}
    rows = ["| probe | number | bound | smallest | median | largest | why |", "|---|---|---|---|---|---|---|"]
    for probe in _catalogue(project):
        found = alarms.get("probes", {}).get(probe["name"], {})
        measured = {one["name"]: one for one in found.get("measurements", [])}
        for bound in probe["bounds"]:
            one = measured.get(bound["name"], {})
            spread = [_number(one[key]) if key in one else "–" for key in ("min", "median", "max")]
            cells = [code(probe["name"]), _named(bound), _limit(bound["bound"]), *spread, markdown(bound["why"])]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def false_alarms(project: Project) -> str:
    found = evidence.read(project, "false-alarms")
    if found is None:
        return "Not measured yet.\n"
    alarms = found["false_alarms"]
    head = (
        f"**{len(alarms)} red** in {markdown(str(found['runs']))} runs of {code(str(found['stack']))} with seeds "
        f"{markdown(str(found['seeds']))}, {markdown(str(found['side_by_side']))} runs side by side on "
        f"{markdown(str(found['cores']))} cores. {_source(project, found)}"
    )
    lines = [
        head,
        *(f"- seed {int(one['seed'])}: {code(one['probe'])}: {markdown(one['reason'])}" for one in alarms),
    ]
    return "\n".join(lines) + "\n"


def controls(project: Project) -> str:
    found = evidence.read(project, "controls")
    if found is None:
        return "Not measured yet.\n"
    head = (
        f"**{int(found['caught'])} of {int(found['controls'])}** caught for the right reason, "
        f"**{int(found['false_alarms'])}** false alarms on their twins. {_source(project, found)}"
    )
    rows = [
        head,
        "",
        "| control | what is wrong | must fail | seen | made good by | seen then |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cells = [
            code(row["control"]), markdown(row["title"]), ", ".join(map(code, row["expected"])),
            _outcomes(row["on_control"], row["expected"]), _change(row), _outcomes(row["on_twin"], row["expected"]),
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def mutants(project: Project) -> str:
    found = evidence.read(project, "mutants")
    if found is None:
        return "Not measured yet.\n"
    total = found["total"]
    killed, of_all = int(total["killed"]), int(total["mutants"])
    rows = [
        f"**{killed} of {of_all}** killed ({total['rate']:.0%}). {_source(project, found)}",
        "",
        "| package | mutants | killed | rate |",
        "|---|---|---|---|",
        *(f"| {markdown(name)} | {int(one['mutants'])} | {int(one['killed'])} | {one['rate']:.0%} |" for name, one in
          found["packages"].items()),
    ]  # fmt: skip
    survivors = [one for one in found["mutants"] if one["outcome"] == "survived"]
    if survivors:
        rows += ["", "Survivors:", ""]
        rows += [
            f"- {code(one['id'])}: {markdown(one['why'])}. "
            f"Why it survives: {markdown(one.get('reason_survived') or 'not looked into')}"
            for one in survivors
        ]
    return "\n".join(rows) + "\n"


def speed(project: Project) -> str:
    found = evidence.read(project, "suite-speed")
    if found is None:
        return "Not measured yet.\n"
    return (
        f"{int(found['probes'])} probes in {found['wall_s']:.0f} s: {found['imports_s']:.0f} s of imports and "
        f"{found['compute_s']:.0f} s of the probes' own compute, **{found['overhead']:.2f}** times the two together. "
        f"The same probes in a fresh process each: {found['fresh_s']:.0f} s, **{found['fresh_over_suite']:.1f}** times "
        f"the suite. {_source(project, found)}\n"
    )


def images(project: Project) -> str:
    """Every image that was built and weighed, beside the locked files that it is made of."""
    rows = [
        f"| stack | digest | to pull | locked files | of them, at most {weight.GOAL} | layers | built |",
        "|---|---|---|---|---|---|---|",
    ]
    measured = _images(project)
    for name in stack.names(project):
        if (found := measured.get(name)) is None:
            rows.append(f"| `{name}` | not built yet | | | | | |")
            continue
        older = "" if found.get("inputs") == _inputs(project, lockfile.load(project, name)) else ", an earlier image"
        of_them = found["bytes"] / found["files_bytes"]
        cells = [
            f"`{name}`", code(_short(found["manifest"])), _megabytes(found["bytes"]), _megabytes(found["files_bytes"]),
            f"{of_them:.2f}{'' if of_them <= weight.GOAL else ' (missed)'}", str(len(found["layers"])),
            f"{markdown(found['date'])}{older}",
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def layers(project: Project) -> str:
    """Every layer of every image; the same digest in two columns is stored once by a registry, and pulled once."""
    measured = _images(project)
    names = [name for name in stack.names(project) if name in measured]
    if not names:
        return "Not measured yet.\n"
    seen: dict[str, dict[str, dict[str, Any]]] = {}
    for name in names:
        for layer in measured[name]["layers"]:
            seen.setdefault(layer["name"], {})[name] = layer
    counts: dict[str, int] = {}
    for name in names:
        for digest in {layer["digest"] for layer in measured[name]["layers"]}:
            counts[digest] = counts.get(digest, 0) + 1
    rows = [f"| layer | {' | '.join(f'`{name}`' for name in names)} |", "|" + "---|" * (len(names) + 1)]
    for layer_name in sorted(seen, key=_layer_order(measured, names)):
        cells = []
        for name in names:
            layer = seen[layer_name].get(name)
            shared = " (shared)" if layer and counts[layer["digest"]] > 1 else ""
            cells.append(f"{code(_short(layer['digest']))} {_megabytes(layer['bytes'])}{shared}" if layer else "")
        rows.append(f"| {markdown(layer_name)} | {' | '.join(cells)} |")
    once = {layer["digest"]: layer["bytes"] for name in names for layer in measured[name]["layers"]}
    total = sum(measured[name]["bytes"] for name in names)
    stored = sum(once.values())
    sharing = f"A registry stores {_megabytes(stored)} for all, **{stored / total:.2f}** of the sum of their sizes."
    return "\n".join([*rows, "", sharing]) + "\n"


def _layer_order(measured: dict[str, Any], names: list[str]) -> Callable[[str], int]:
    """Where a layer stands in the image that has the most of them before it."""
    places: dict[str, int] = {}
    for name in names:
        for place, layer in enumerate(measured[name]["layers"]):
            places[layer["name"]] = max(place, places.get(layer["name"], 0))
    return lambda name: places[name]


def builds(project: Project) -> str:
    """Building and pulling, beside one layer of the same distributions; what misses its target says so."""
    found = evidence.read(project, "bench")
    if found is None:
        return "Not measured yet.\n"
    of, bumped = markdown(found["stack"]), markdown(found["bumped"])
    rows = [
        f"The same locked distributions on the same base, {of}; the bump is {bumped}. {_measured(found)}.",
        "",
        "| way | cold build | one pin changed | image | pulled for that |",
        "|---|---|---|---|---|",
    ]
    for name, way in found["ways"].items():
        seconds = [" · ".join(f"{one:.0f} s" for one in way[key]) for key in ("cold_s", "bump_s")]
        rows.append(
            f"| {' | '.join([markdown(name), *seconds, _megabytes(way['bytes']), _megabytes(way['pulled_bytes'])])} |"
        )
    rows += ["", "| ratio | measured | at most |", "|---|---|---|"]
    for name, limit in found["limits"].items():
        ratio = found["ratios"][name]
        rows.append(
            f"| {markdown(name.replace('_', ' '))} | {ratio:.2f} | {limit:.2f}{'' if ratio <= limit else ' (missed)'} |"
        )
    steps = ", ".join(
        f"{markdown(name)}: {' · '.join(f'{one:.1f} s' for one in seconds)}"
        for name, seconds in found["first_step_s"].items()
    )
    return "\n".join([*rows, "", f"From the start of a container to its first GRPO step: {steps}."]) + "\n"


def without_gpu(project: Project) -> str:
    """What ran inside the images for GPUs on a machine without one: reports, never certificates."""
    rows = ["| stack | passed | red without a GPU | not run | suite |", "|---|---|---|---|---|"]
    today = sources.digest(project.smoke)
    for name, found in _images(project).items():
        if (ran := found.get("without_gpu")) is None:
            continue
        red = "<br>".join(f"{code(probe)}: {markdown(reason)}" for probe, reason in ran["red"].items())
        older = "" if ran["suite"] == today else ", an earlier suite"
        not_run = ", ".join(map(code, ran["not_run"]))
        cells = [code(name), str(len(ran["passed"])), red or "none", not_run, f"{code(_short(ran['suite']))}{older}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n" if len(rows) > 2 else "Not run yet.\n"


def _images(project: Project) -> dict[str, Any]:
    measured: dict[str, Any] = (evidence.read(project, weight.EVIDENCE) or {}).get("images", {})
    return measured


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 5e5 else f"{size / 1e3:.1f} kB"


def _source(project: Project, found: dict[str, Any]) -> str:
    older = "" if found["suite"] == sources.digest(project.smoke) else ", an earlier suite"
    return f"{_measured(found)}; suite {code(_short(str(found['suite'])))}{older}."


def _measured(found: dict[str, Any]) -> str:
    date, machine = markdown(str(found["date"])), markdown(str(found["machine"]))
    return f"Measured on {date} ({machine}) by {code(str(found['command']))}"


def _outcomes(rows: list[dict[str, Any]], names: list[str]) -> str:
    return ", ".join(markdown(row["outcome"]) for row in rows if row["probe"] in names)


def _change(row: dict[str, Any]) -> str:
    """What makes a control good: another distribution, or patches, each with a link to it."""
    links = [f"patch [{markdown(Path(file).stem)}](../{quote(file)})" for file in row.get("patches", ())]
    return ", ".join(links) or markdown(str(row["twin"]))


def _named(bound: dict[str, Any]) -> str:
    return code(bound["name"]) + (f", {markdown(bound['unit'])}" if bound["unit"] else "")


def _limit(bound: dict[str, float] | None) -> str:
    signs = {"at_most": "≤", "at_least": "≥", "equals": "="}
    return " ".join(f"{signs[kind]} {_number(limit)}" for kind, limit in (bound or {}).items())


def _range(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return "–"
    least, most = _number(measured["min"]), _number(measured["max"])
    runs = f"in {int(measured['n'])} runs"
    return f"{least} {runs}" if least == most else f"{least} to {most} {runs}"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _catalogue(project: Project) -> list[dict[str, Any]]:
    """What the probes say about themselves."""
    return [probe.model_dump() for probe in catalogue.read(project.smoke)]


def attacks(project: Project) -> str:
    """Every attack that is tested: what is tried, by the test's name, and how, by its docstring."""
    rows = ["| tried | how | test |", "|---|---|---|"]
    for path in sorted((project.root / "tests" / "attacks").glob("test_*.py")):
        for node in ast.parse(reading.text(path, project.relative(path))).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                how = (ast.get_docstring(node) or "").partition("\n\n")[0]
                tried = node.name.removeprefix("test_").replace("_", " ")
                rows.append(f"| {markdown(tried)} | {markdown(how)} | {code(path.stem.removeprefix('test_'))} |")
    return "\n".join(rows) + "\n"


# The generated parts: between a mark that names one and its end, in the documents that hold such marks.
PARTS: dict[str, Callable[[Project], str]] = {
    "attacks": attacks,
    "matrix": matrix,
    "probes": probes,
    "numbers": numbers,
    "false alarms": false_alarms,
    "controls": controls,
    "mutants": mutants,
    "speed": speed,
    "images": images,
    "layers": layers,
    "builds": builds,
    "without gpu": without_gpu,
}
MARK = re.compile(
    r"(<!-- (?P<part>[a-z ]+): generated by `vetted render` -->\n).*?(<!-- end of (?P=part) -->)", re.DOTALL
)


def generated(project: Project) -> dict[Path, str]:
    """Every generated document and what it must hold. Raises BadInputError when one lost its marks."""
    texts = {}
    for path in (project.root / "README.md", *sorted((project.root / "docs").glob("*.md"))):
        where = project.relative(path)
        text = reading.text(path, where, f"git checkout {where}")
        parts = [match["part"] for match in MARK.finditer(text)]
        if unknown := [part for part in parts if part not in PARTS]:
            raise errors.BadInputError(
                f"{where}: nothing generates {', '.join(unknown)}", next_step=f"git checkout {where}"
            )
        if path.name == "README.md" and parts != ["matrix"]:
            raise errors.BadInputError(
                "README.md: the marks around the matrix are gone", next_step="git checkout README.md"
            )
        if parts:
            texts[path] = MARK.sub(lambda match: match[1] + _part(project, match["part"]) + match[3], text)
    if knowledge.path(project).parent.is_dir():
        texts[knowledge.path(project)] = knowledge.text(project, lambda lock: certified_where(project, lock))
    texts[project.root / "docs" / "certificate.schema.json"] = json.dumps(certificate.schema(), indent=2) + "\n"
    return texts


def _part(project: Project, name: str) -> str:
    try:
        return PARTS[name](project)
    except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise errors.BadInputError(
            f"the evidence of the part {name!r} says something else than what is recorded: {error!r}",
            cause="a file in docs/evidence/ was edited, or a merge left its marks",
            next_step="git checkout docs/evidence",
        ) from error


def stale(project: Project) -> list[Path]:
    return [
        path for path, text in generated(project).items() if not path.is_file() or path.read_bytes() != text.encode()
    ]


def refresh(project: Project, scratch: Path) -> list[Path]:
    """Bring every generated document up to date; the ones that changed."""
    wanted = generated(project)
    changed = [path for path, text in wanted.items() if not path.is_file() or path.read_bytes() != text.encode()]
    for path in changed:
        write(path, wanted[path], scratch)
    return changed
