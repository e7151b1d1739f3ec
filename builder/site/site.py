"""Makes the site: every page in a new folder, the search index over them, then the new folder in place of the old."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, output_folder, process, reading
from builder.base.project import Project, remove
from builder.base.text import word
from builder.certify import certificate
from builder.certify.assessment import Assessments
from builder.intent import advisory, stack
from builder.site import history, pages, proof, stacks
from builder.site.page import REGISTRY, Content

EXTRA = {"vl_convert": "vl-convert-python", "pagefind_bin": "pagefind[bin]"}  # the packages, by a module of each
MARK = ".vetted-site"  # the file by which a folder is known as one that this stage may replace
FIRST = "made by `vetted site`, which replaces these files:"
STATES = ("certified", "expired", "does not hold", "not a certificate", "earlier")
COMMIT = re.compile(r"([0-9a-f]{40,64}(?:-dirty)?)\n")
SEARCHED = ".searched"  # a folder of what the search reads, which is gone when the site is complete
# What most certificates have in common, and their numbers: 98 hundredths of a page, which the search would take most of
# its time to read, and a gigabyte of memory for some thousands of pages.
UNSEARCHED = "<!-- no search -->\n", "<!-- search -->\n"
LOADED = re.compile(r'<(?:link|script|img)\b[^>]*? (?:href|src)="([^"]+)"')
Report = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """The result. `largest`: the page that loads the most bytes, its own included."""

    output: Path
    pages: int
    states: dict[str, int]
    largest: str
    largest_bytes: int


def read(project: Project, scratch: Path, report: Report, registry: str = REGISTRY) -> Content:
    """Everything that the site shows. Raises BadInputError for a broken stack, lock, advisory or evidence file."""
    records, assessments = [], Assessments(project, report)
    for name in stack.names(project):
        report(f"judging {name}")
        records.append(stacks.read(project, name, scratch, assessments))
    known, evidence = advisory.load_all(project), proof.read(project)
    return Content(project, records, known, evidence, certificate.today(), _commit(project), registry)


def _commit(project: Project) -> str:
    """The commit of the project, with `-dirty` where files were changed since; empty without git."""
    with suppress(errors.MissingToolError):
        argv = [*history.GIT, str(project.root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        if match := COMMIT.fullmatch(process.run(argv).stdout):
            return match[1]
    return ""


def complete() -> None:
    """Raises MissingToolError where the packages of the extra `site` are not installed."""
    missing = [name for module, name in EXTRA.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise errors.MissingToolError(
            f"not installed: {', '.join(missing)}",
            cause="Vetted was installed without its extra `site`, which draws the charts and makes the search",
            next_step="pip install 'vetted[site]', or ./vetted of a clone, which has it",
        )


def replaceable(output: Path) -> None:
    """Raises StorageError when a folder has files that are not of an earlier site."""
    output_folder.refuse(
        output, lambda folder: (folder / MARK).is_file(), "neither an empty folder nor an earlier site"
    )
    if (output / MARK).is_file() and (names := _others(output)):
        raise errors.StorageError(
            f"{output} has {names[0]}, which is not of the earlier site there, so all of it stays as it is",
            cause="the folder was made a repository, or a file was added or renamed by hand",
            next_step=f"move {word(names[0])} to another folder, or choose another --output",
        )


def _others(output: Path) -> list[str]:
    """The files in an earlier site that are somebody else's."""
    listed = set(reading.text(output / MARK, str(output / MARK)).splitlines()[1:])
    there = {
        path.relative_to(output): path.is_symlink()
        for path in output.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    # A site from before 2026-11-28 has no list: there, only what is hidden is known to be of something else.
    others = [
        path
        for path, link in there.items()
        if link or (path.as_posix() not in listed if listed else any(part.startswith(".") for part in path.parts))
    ]
    return sorted(path.as_posix() for path in others if path != Path(MARK))


def make(content: Content, output: Path, report: Report) -> Result:
    """Write the site. What was there before stays until the new one is complete, and is removed when that is there."""
    replaceable(output)
    output = output.absolute()
    with output_folder.folder(output) as partial:
        loads = _write(content, partial, report)
        report("indexing for the search")
        _index(partial)
        remove(partial / SEARCHED)
        names = sorted(path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file())
        (partial / MARK).write_text("".join(f"{line}\n" for line in (FIRST, *names)), encoding="utf-8")
        replaceable(output)  # pages took a while
    largest = max(loads, key=lambda path: loads[path])
    states = dict.fromkeys(STATES, 0)
    for entry in content.stacks:
        for each in (*entry.current, *entry.earlier):
            states[each.state] += 1
        states["not a certificate"] += len(entry.unreadable)
    return Result(output, len(loads), states, largest, loads[largest])


def _write(content: Content, folder: Path, report: Report) -> dict[str, int]:
    """Write every file; the bytes that each page loads, its own included."""

    def put(path: str, data: bytes) -> None:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    for path, source in pages.texts().items():
        put(path, source.read_bytes())
    for path, data in pages.files(content):
        put(path, data)
    loads = {}
    for page in pages.pages(content):
        report(page.path)
        html = page.html(content)
        data = html.encode()
        put(page.path, data)
        if page.kind:
            put(f"{SEARCHED}/{page.path}", searched(html).encode())
        loads[page.path] = len(data) + sum(
            (folder / page.path).parent.joinpath(path).stat().st_size for path in loaded(html)
        )
    return loads


def _index(folder: Path) -> None:
    options = [f"--site={folder / SEARCHED}", f"--output-path={folder / 'pagefind'}", "--keep-index-url", "--silent"]
    process.check("indexing the pages", [sys.executable, "-m", "pagefind", *options])
    for path in (folder / "pagefind").iterdir():
        if "-ui." in path.name or path.name.startswith("pagefind-highlight"):  # the page has its own few lines
            path.unlink()


def searched(html: str) -> str:
    """The part of a page that the search reads."""
    begin, _, rest = html.partition(UNSEARCHED[0])
    return begin + rest.partition(UNSEARCHED[1])[2]


def loaded(html: str) -> set[str]:
    """The files that a page of our templates loads by itself, as it names them."""
    return set(LOADED.findall(html))
