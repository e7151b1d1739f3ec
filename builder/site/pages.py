"""Every page of the site: its address, its template, and what it shows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from builder.base import text
from builder.base.project import Project
from builder.intent.advisory import SEVERITIES
from builder.lock import gpus as known
from builder.lock import kernels
from builder.lock.lockfile import Lock
from builder.pages import records
from builder.site import badges, board, certificates, charts, comparison, lists, markup, numbers, pictures, proof
from builder.site.certificates import Certificate
from builder.site.comparison import Comparison
from builder.site.page import Content, Page
from builder.site.stacks import StackPage

LISTED = 200  # certificates in a table; more are on further pages
BOARD = 40  # stacks in a matrix; more are on further pages
DOUBTED = 50  # certificates in doubt on the first page; the list of all begins with them
CHARTED = 15  # certificates in a chart over time


def pages(content: Content) -> Iterator[Page]:
    """Every page, in the order in which they are written."""
    yield from _boards(content)
    yield from lists.all_of(content, LISTED)
    for stack in content.stacks:
        yield _stack(stack)
        yield from lists.of_stack(stack, LISTED)
        for entry in (*stack.current, *stack.earlier):
            yield _certificate(stack, entry)
    yield Page("compare/index.html", "compare.html.j2", "Compare stacks")
    for old, new in itertools.permutations(content.compared, 2):
        step = Comparison(old, new)
        yield Page(
            step.page, "comparison.html.j2", f"{old.name} → {new.name}", values={"step": step, "part": comparison.part}
        )
    yield Page("advisories/index.html", "advisories.html.j2", "Advisories", values={"severities": SEVERITIES})
    for advisory in content.advisories:
        touched = [stack for stack in content.stacks if advisory in stack.advisories]
        yield Page(
            f"advisories/{advisory.id}.html", "advisory.html.j2", f"{advisory.id}: {advisory.summary}", "advisory",
            {"advisory": advisory, "touched": touched},
        )  # fmt: skip
    yield _gpus(content)
    yield _suite(content)
    yield Page("verify.html", "verify.html.j2", "Verify it yourself", "guide")
    yield Page("search.html", "search.html.j2", "Search")


def files(content: Content) -> Iterator[tuple[str, bytes]]:
    """Every other file: copies of what the pages show, badges, and the machine-readable list."""
    evidence = content.project.root / "docs" / "evidence"
    recorded = [*content.proof.files, *([records.Images.FILE] if any(s.image for s in content.stacks) else [])]
    for name in recorded:
        yield f"evidence/{name}.json", (evidence / f"{name}.json").read_bytes()
    for stack in content.stacks:
        yield stack.badge, _badge(badges.of_stack(stack))
        for entry in stack.current:
            yield f"badges/{stack.name}/{entry.name}.svg", _badge(badges.of_certificate(stack.name, entry))
        for entry in (*stack.current, *stack.earlier):
            yield entry.file, entry.content
    yield "certificates.json", (json.dumps(_summary(content), indent=1) + "\n").encode()


def _badge(badge: badges.Badge) -> bytes:
    return markup.templates().get_template("badge.svg.j2").render(badge=badge).encode()


def _summary(content: Content) -> list[dict[str, object]]:
    """The certificates for programs: what each is worth, and where it is."""
    return [
        {
            "stack": entry.stack, "hardware": entry.hardware, "about": entry.about, "state": entry.state,
            "issued": str(entry.assessment.issued), "expires": str(entry.assessment.expires),
            "doubts": list(entry.doubts), "file": entry.file, "sha256": entry.sha256, "page": entry.page,
        }
        for entry in content.lists
    ]  # fmt: skip


def _boards(content: Content) -> Iterator[Page]:
    """The matrix: the first page of the site, and further ones with more stacks than one table shows."""
    columns = board.columns(content.stacks)
    doubtful = [entry for entry in content.lists if entry.state != "certified"]
    unreadable = [entry for stack in content.stacks for entry in stack.unreadable]
    paths = lists.paths("index.html", "matrix-{}.html", len(content.stacks), BOARD)
    for number, path in enumerate(paths):
        shown = content.stacks[number * BOARD : (number + 1) * BOARD]
        rows = {stack.name: board.row(stack, columns) for stack in shown}
        used = [name for name in columns if any(rows[stack.name][name] != board.NOT_FOR for stack in shown)]
        listed = [entry for stack in shown for entry in stack.current[:CHARTED]]
        values = {
            "stacks": shown, "columns": used, "rows": rows, "paths": paths, "number": number,
            "doubtful": doubtful[:DOUBTED] if number == 0 else [], "in_doubt": len(doubtful),
            "unreadable": unreadable[:DOUBTED] if number == 0 else [],
            "versions": list(shown[0].versions) if shown else [],
            "validity": charts.draw("validity", _validity(listed[:CHARTED]), "From issue to expiry of certificates"),
            "sizes": charts.draw("sizes", size_rows(shown), "Bytes of each image by layer"),
        }  # fmt: skip
        title = "Certified stacks for GRPO training" + (f", page {number + 1}" if number else "")
        yield Page(path, "index.html.j2", title, "page", values)


def size_rows(stacks: Iterable[StackPage]) -> list[dict[str, object]]:
    """The layers of every image that was measured."""
    return [
        {"image": stack.name, "layer": layer.name, "bytes": layer.bytes, "place": place}
        for stack in stacks
        if stack.image
        for place, layer in enumerate(stack.image.layers)
    ]


def _validity(listed: Iterable[Certificate]) -> list[dict[str, object]]:
    spans = [(entry, certificates.span(entry)) for entry in listed]
    return [
        {"name": f"{entry.stack} · {entry.hardware}", "from": str(span[0]), "to": str(span[1]), "state": entry.state}
        for entry, span in spans
        if span
    ]


def _stack(stack: StackPage) -> Page:
    series = [past for past in reversed(stack.earlier) if past.assessment.result == "PASSED"]
    series = [*series, *stack.certified[:1]][-CHARTED:]
    if len(series) < 2:  # no course of time
        series = []
    label = f"Over the last certificates of {stack.name}"
    return Page(
        stack.page, "stack.html.j2", stack.name, "stack",
        {
            "stack": stack, "listed": stack.current[:LISTED], "past": stack.earlier[:LISTED],
            "paths": lists.of_stack_paths(stack, LISTED),
            "badge": badges.of_stack(stack),
            "seconds": charts.draw("seconds", _seconds(series), f"{label}: seconds of all probes"),
            "nearness": charts.draw("nearness", _nearness(series), f"{label}: share of its bound of each headline"),
        },
    )  # fmt: skip


def _when(entry: Certificate) -> str:
    """A certificate on the axis of a chart: its day, and the commit where it is an earlier one."""
    return f"{entry.commit.day} {entry.commit.id[:7]}" if entry.commit else f"{entry.assessment.issued} today"


def _seconds(series: Sequence[Certificate]) -> list[dict[str, object]]:
    return [
        {"certificate": _when(entry), "seconds": sum(probe.seconds for probe in entry.statement.predicate.probes)}
        for entry in series
    ]


def _nearness(series: Sequence[Certificate]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for entry in series:
        for probe in entry.statement.predicate.probes:
            headline = probe.headline
            value = entry.numbers.get((probe.name, headline.name)) if headline else None
            if headline and value and (share := pictures.nearness(value[0], headline.bound)) is not None:
                rows.append({"certificate": _when(entry), "probe": probe.name, "nearness": share})
    return rows


def _certificate(stack: StackPage, entry: Certificate) -> Page:
    past = stack.before(entry) if entry.commit is None and stack.earlier else []
    title = f"ertificate of {entry.stack} on {text.line(entry.hardware, 100)}"
    title, kind = (f"Earlier c{title}", "") if entry.commit else (f"C{title}", "certificate")
    values = {
        "entry": entry, "stack": stack, "rows": numbers.rows, "trails": _trails(past, entry),
        "badge": badges.of_certificate(stack.name, entry),
    }  # fmt: skip
    return Page(entry.page, "certificate.html.j2", title, kind, values)


def _trails(past: Sequence[Certificate], entry: Certificate) -> dict[tuple[str, str], numbers.Trail]:
    """The numbers that have moved, by probe and name."""
    if not past:
        return {}
    answer = {}
    recent = [*past[-CHARTED:], entry]
    for key in entry.numbers:
        values = [
            (each.numbers[key][0], f"{each.file}#{each.numbers[key][1]}") for each in recent if key in each.numbers
        ]
        if points := pictures.line([value for value, _ in values]):
            answer[key] = numbers.Trail(points, min(values), max(values))
    return answer


def _gpus(content: Content) -> Page:
    cuda = [stack for stack in content.stacks if stack.gpus]
    libraries = {stack.name: _libraries(content.project, stack.lock) for stack in cuda}
    return Page("gpus.html", "gpus.html.j2", "GPUs", "page", {"gpus": known.GPUS, "cuda": cuda, "libraries": libraries})


def _libraries(project: Project, lock: Lock) -> dict[str, dict[str, str]]:
    """Library -> compute capability -> verdict, from the kernels in the locked files."""
    if (read := kernels.of_lock(project, lock)) is None:
        return {}
    parts = known.architectures(read)
    by_gpu = {gpu.number: known.verdicts(parts, gpu.capability) for gpu in known.GPUS}
    return {title: {number: str(verdicts[title]) for number, verdicts in by_gpu.items()} for title in parts}


def _suite(content: Content) -> Page:
    measured = content.proof
    pictures_ = {
        "controls": charts.draw("controls", proof.control_rows(measured), "Each control: known bad and made good"),
        "mutants": charts.draw("mutants", proof.mutant_rows(measured), "Mutants of each package: killed and survived"),
        "alarms": charts.draw(
            "alarms", proof.alarm_rows(measured), "Each headline as a share of its bound over all runs"
        ),
    }
    return Page(
        "suite.html", "suite.html.j2", "How the suite was tested", "page", {"proof": measured, "charts": pictures_}
    )


def texts() -> Mapping[str, Path]:
    """The style sheet and the scripts."""
    folder = markup.HERE / "static"
    return {f"static/{path.name}": path for path in sorted(folder.iterdir()) if path.is_file()}
