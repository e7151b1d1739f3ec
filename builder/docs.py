"""What the documents show of the code and the certificates: generated, committed, checked."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builder import certificate, errors, evidence, knowledge, lock, process, stack, suite
from builder.certificate import Statement
from builder.lock import Lock
from builder.project import Project, write

COLUMNS = ("trl", "vllm", "torch", "transformers", "deepspeed", "bitsandbytes")


def is_current(held: Lock, statement: Statement) -> bool:
    """Does a certificate speak of today's lock?"""
    return statement.resource("lock").digest == certificate.bare(held.digest)


def certified_on(held: Lock, statement: Statement, today: str) -> str | None:
    """Where a certificate was earned, or None when it speaks of another lock than today's."""
    if not is_current(held, statement):
        return None
    engine = (statement.resource("engine").annotations or {}).get("name")
    hardware = (statement.resource("hardware").annotations or {}).get("class")
    older = "" if statement.resource("suite").digest == certificate.bare(today) else ", by an earlier suite"
    return f"{hardware} ({'image' if engine == 'docker' else 'lock'}{older})"


def certified_where(project: Project, held: Lock) -> list[str]:
    """Every place where today's lock was certified."""
    today = suite.digest(project.smoke)
    statements = certificate.of_stack(project, held.name).values()
    return [found for statement in statements if (found := certified_on(held, statement, today))]


def versions(held: Lock) -> dict[str, str]:
    return {
        column: next((held.versions[n] for n in (column, f"{column}-cpu") if n in held.versions), "–")
        for column in COLUMNS
    }


def matrix(project: Project) -> str:
    rows = [f"| stack | {' | '.join(COLUMNS)} | certified on |", "|" + "---|" * (len(COLUMNS) + 2)]
    for name in stack.names(project):
        held = lock.load(project, name)
        where = "<br>".join(certified_where(project, held)) or "**not certified**"
        cells = [f"`{name}`", *versions(held).values(), where]
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
            f"`{probe['name']}`", probe["asks"], _named(headline), _limit(headline["bound"]), _range(measured),
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
            cells = [f"`{probe['name']}`", _named(bound), _limit(bound["bound"]), *spread, bound["why"]]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def false_alarms(project: Project) -> str:
    found = evidence.read(project, "false-alarms")
    if found is None:
        return "Not measured yet.\n"
    alarms = found["false_alarms"]
    head = (
        f"**{len(alarms)} red** in {found['runs']} runs of `{found['stack']}` with seeds {found['seeds']}, "
        f"{found['side_by_side']} runs side by side on {found['cores']} cores. {_source(project, found)}"
    )
    lines = [
        head,
        *(f"- seed {one['seed']}: `{one['probe']}`: {one['reason']}" for one in alarms),
    ]
    return "\n".join(lines) + "\n"


def controls(project: Project) -> str:
    found = evidence.read(project, "controls")
    if found is None:
        return "Not measured yet.\n"
    head = (
        f"**{found['caught']} of {found['controls']}** caught for the right reason, **{found['false_alarms']}** false "
        f"alarms on their twins. {_source(project, found)}"
    )
    rows = [
        head,
        "",
        "| control | what is wrong | must fail | seen | made good by | seen then |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cells = [
            f"`{row['control']}`", row["title"], ", ".join(f"`{name}`" for name in row["expected"]),
            _outcomes(row["on_control"], row["expected"]), _change(row), _outcomes(row["on_twin"], row["expected"]),
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def mutants(project: Project) -> str:
    found = evidence.read(project, "mutants")
    if found is None:
        return "Not measured yet.\n"
    total = found["total"]
    rows = [
        f"**{total['killed']} of {total['mutants']}** killed ({total['rate']:.0%}). {_source(project, found)}",
        "",
        "| package | mutants | killed | rate |",
        "|---|---|---|---|",
        *(f"| {name} | {one['mutants']} | {one['killed']} | {one['rate']:.0%} |" for name, one in
          found["packages"].items()),
    ]  # fmt: skip
    survivors = [one for one in found["mutants"] if one["outcome"] == "survived"]
    if survivors:
        rows += ["", "Survivors:", ""]
        rows += [
            f"- `{one['id']}`: {one['why']}. Why it survives: {one.get('reason_survived') or 'not looked into'}"
            for one in survivors
        ]
    return "\n".join(rows) + "\n"


def speed(project: Project) -> str:
    found = evidence.read(project, "suite-speed")
    if found is None:
        return "Not measured yet.\n"
    return (
        f"{found['probes']} probes in {found['wall_s']:.0f} s: {found['imports_s']:.0f} s of imports and "
        f"{found['compute_s']:.0f} s of the probes' own compute, **{found['overhead']:.2f}** times the two together. "
        f"The same probes in a fresh process each: {found['fresh_s']:.0f} s, **{found['fresh_over_suite']:.1f}** times "
        f"the suite. {_source(project, found)}\n"
    )


def _source(project: Project, found: dict[str, Any]) -> str:
    older = "" if found["suite"] == suite.digest(project.smoke) else ", an earlier suite"
    digest = str(found["suite"]).removeprefix("sha256:")[:12]
    return f"Measured on {found['date']} ({found['machine']}) by `{found['command']}`; suite `{digest}`{older}."


def _outcomes(rows: list[dict[str, Any]], names: list[str]) -> str:
    return ", ".join(row["outcome"] for row in rows if row["probe"] in names)


def _change(row: dict[str, Any]) -> str:
    """What makes a control good: another distribution, or patches, each with a link to it."""
    links = [f"patch [{Path(file).stem}](../{file})" for file in row.get("patches", ())]
    return ", ".join(links) or str(row["twin"])


def _named(bound: dict[str, Any]) -> str:
    return f"`{bound['name']}`" + (f", {bound['unit']}" if bound["unit"] else "")


def _limit(bound: dict[str, float] | None) -> str:
    signs = {"at_most": "≤", "at_least": "≥", "equals": "="}
    return " ".join(f"{signs[kind]} {_number(limit)}" for kind, limit in (bound or {}).items())


def _range(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return "–"
    least, most = _number(measured["min"]), _number(measured["max"])
    return f"{least} in {measured['n']} runs" if least == most else f"{least} to {most} in {measured['n']} runs"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _catalogue(project: Project) -> list[dict[str, Any]]:
    """What the probes say about themselves. The suite is asked in a process of its own: it is no part of the tool."""
    listed = process.check("listing the probes", [sys.executable, "-m", "smoke", "--list"], cwd=project.root)
    catalogue: list[dict[str, Any]] = json.loads(listed.stdout)
    return catalogue


# The generated parts: between a mark that names one and its end, in the documents that hold such marks.
PARTS: dict[str, Callable[[Project], str]] = {
    "matrix": matrix,
    "probes": probes,
    "numbers": numbers,
    "false alarms": false_alarms,
    "controls": controls,
    "mutants": mutants,
    "speed": speed,
}
MARK = re.compile(
    r"(<!-- (?P<part>[a-z ]+): generated by `vetted render` -->\n).*?(<!-- end of (?P=part) -->)", re.DOTALL
)


def generated(project: Project) -> dict[Path, str]:
    """Every generated document and what it must hold. Raises BadInputError when one lost its marks."""
    texts = {}
    for path in (project.root / "README.md", *sorted((project.root / "docs").glob("*.md"))):
        where = project.relative(path)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise errors.BadInputError(f"{where} is not UTF-8 text", next_step=f"git checkout {where}") from error
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
            texts[path] = MARK.sub(lambda match: match[1] + PARTS[match["part"]](project) + match[3], text)
    if knowledge.path(project).parent.is_dir():
        texts[knowledge.path(project)] = knowledge.text(project, lambda held: certified_where(project, held))
    texts[project.root / "docs" / "certificate.schema.json"] = json.dumps(certificate.schema(), indent=2) + "\n"
    return texts


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
