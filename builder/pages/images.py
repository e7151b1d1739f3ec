"""The images in the documents: what they weigh, what they share, and how long they take to build."""

from __future__ import annotations

from collections.abc import Sequence

from builder.base.project import Project
from builder.image import target
from builder.intent import stack
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.pages import cells, evidence, records, suite
from builder.pages.cells import Markdown
from builder.pages.records import Image, Layer

OLDER = ", an older build; today's would differ"
BASE = "base"  # the layer of the Debian packages
GOAL = 0.9  # an image's bytes over those of its locked files, at most; where it is missed, the documents say so


def measured(project: Project) -> dict[str, Image]:
    """What was measured of each image, by its name: that of the stack, with .arm64 behind it for that platform."""
    record = evidence.read(project, records.Images)
    return record.images if record else {}


def _locks(project: Project) -> list[Lock]:
    """Those of the images that the project ships."""
    return [lock for name in stack.shipped(project) for lock in lockfile.load_all(project, name)]


def _weighed(project: Project) -> dict[str, Image]:
    """Those of them that were measured."""
    rows = measured(project)
    return {lock.image: rows[lock.image] for lock in _locks(project) if lock.image in rows}


def images(project: Project) -> str:
    """Every image that was built and weighed, beside the locked files that it is made of."""
    rows: list[list[object]] = []
    weighed = measured(project)
    for lock in _locks(project):
        if (image := weighed.get(lock.image)) is None:
            rows.append([cells.code(lock.image), "not built yet", *[""] * 5])
            continue
        today = target.inputs_of(project, lock)
        ratio = image.bytes / image.files_bytes
        rows.append(
            [
                cells.code(lock.image), cells.short(image.manifest), cells.size(image.bytes),
                cells.size(image.files_bytes), f"{ratio:.2f}{'' if ratio <= GOAL else ' (missed)'}",
                len(image.layers), f"{image.date}{'' if image.inputs == today else OLDER}",
            ]
        )  # fmt: skip
    columns = ["image", "digest", "to pull", "locked files", f"of them, at most {GOAL}", "layers", "built"]
    return cells.table(columns, rows)


def parts(project: Project) -> str:
    """What makes an image larger than its locked files: the base and the bytecode; and the rest, beside the goal."""
    rows: list[list[object]] = []
    for name, image in _weighed(project).items():
        base = sum(layer.bytes for layer in image.layers if layer.name == BASE)
        others = [layer for layer in image.layers if layer.name != BASE]  # whose own bytecode counts as base
        measured_ = [layer.bytecode_bytes for layer in others if layer.bytecode_bytes is not None]
        rest = image.bytes - base - sum(measured_)
        ratio = rest / image.files_bytes
        if len(measured_) < len(others):
            sizes = ["not measured", cells.size(rest), f"{ratio:.2f} with bytecode"]
        else:
            missed = "" if ratio <= GOAL else " (missed)"
            sizes = [cells.size(sum(measured_)), cells.size(rest), f"{ratio:.2f}{missed}"]
        rows.append([cells.code(name), cells.size(image.bytes), cells.size(base), *sizes])
    if not rows:
        return suite.NOT_MEASURED
    columns = ["image", "to pull", "base", "bytecode", "the rest", f"the rest of the locked files, at most {GOAL}"]
    return cells.table(columns, rows)


def layer_sharing(project: Project) -> str:
    rows = list(_weighed(project).values())
    if not rows:
        return suite.NOT_MEASURED
    stored = sum({layer.digest: layer.bytes for image in rows for layer in image.layers}.values())
    total = sum(image.bytes for image in rows)
    return f"A registry stores {cells.size(stored)} for all, **{stored / total:.2f}** of the sum of their sizes.\n"


def layers(project: Project) -> str:
    """The size of every layer in every image; then every layer that a registry stores, once, with its digest."""
    weighed = _weighed(project)
    names = list(weighed)
    if not names:
        return suite.NOT_MEASURED
    stacks: dict[str, list[str]] = {}  # that have a layer, by its digest
    for name in names:
        for digest in {layer.digest for layer in weighed[name].layers}:
            stacks.setdefault(digest, []).append(name)
    by_name = {name: {layer.name: layer for layer in weighed[name].layers} for name in names}

    def shown(layer: Layer | None) -> Markdown:
        if layer is None:
            return Markdown("")
        return Markdown(f"{cells.size(layer.bytes)}{' (shared)' if len(stacks[layer.digest]) > 1 else ''}")

    order = _ordered([weighed[name] for name in names])
    sizes = [[layer, *(shown(by_name[name].get(layer)) for name in names)] for layer in order]
    stored = {layer.digest: layer for layer_name in order for name in names if (layer := by_name[name].get(layer_name))}
    digests = [
        [layer.name, cells.short(digest), cells.size(layer.bytes), cells.codes(stacks[digest])]
        for digest, layer in stored.items()
    ]
    return "\n".join(
        [
            cells.table(["layer", *map(cells.code, names)], sizes),
            cells.table(["layer", "digest", "size", "in the images of"], digests),
        ]
    )


def _ordered(weighed: Sequence[Image]) -> list[str]:
    """The names of all layers, each where it stands in the image that has the most of them before it."""
    places: dict[str, int] = {}
    for image in weighed:
        for place, layer in enumerate(image.layers):
            places[layer.name] = max(place, places.get(layer.name, 0))
    return sorted(places, key=lambda name: places[name])


def builds(project: Project) -> str:
    """Building and pulling, beside one layer of the same distributions; what misses its target says so."""
    record = evidence.read(project, records.Builds)
    if record is None:
        return suite.NOT_MEASURED
    head = (
        f"The same locked distributions on the same base, {cells.escaped(record.stack)}; the bump is "
        f"{cells.escaped(record.bumped)}. {suite.measured(record)}."
    )
    ways = [
        [
            name, _seconds(way.cold_s, 0), _seconds(way.bump_s, 0), cells.size(way.bytes),
            cells.size(way.pulled_bytes),
        ]
        for name, way in record.ways.items()
    ]  # fmt: skip
    ratios = []
    for name, limit in record.limits.items():
        ratio = record.ratios[name]
        missed = "" if ratio <= limit else " (missed)"
        ratios.append([name.replace("_", " "), f"{ratio:.2f}", f"{limit:.2f}{missed}"])
    steps = ", ".join(f"{cells.escaped(name)}: {_seconds(seconds, 1)}" for name, seconds in record.first_step_s.items())
    return "\n".join(
        [
            f"{head}\n",
            cells.table(["way", "cold build", "one pin changed", "image", "pulled for that"], ways),
            cells.table(["ratio", "measured", "at most"], ratios),
            f"From the start of a container to its first GRPO step: {steps}.\n",
        ]
    )


def _seconds(repetitions: Sequence[float], digits: int) -> Markdown:
    return Markdown(" · ".join(f"{seconds:.{digits}f} s" for seconds in repetitions))


def without_gpu(project: Project) -> str:
    """What ran inside the images for GPUs on a machine without one: reports, never certificates."""
    rows = []
    for name, image in measured(project).items():
        if (report := image.without_gpu) is None:
            continue
        red = cells.joined(
            [Markdown(f"{cells.code(probe)}: {cells.escaped(reason)}") for probe, reason in report.red.items()], "<br>"
        )
        suite_ = Markdown(cells.short(report.suite) + suite.older_suite(project, report.suite))
        rows.append([cells.code(name), len(report.passed), red or "none", cells.codes(report.not_run), suite_])
    if not rows:
        return "Not run yet.\n"
    return cells.table(["stack", "passed", "red without a GPU", "not run", "suite"], rows)
