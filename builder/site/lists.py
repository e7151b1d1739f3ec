"""Lists of certificates, in as many pages as they need: of a stack, and of all stacks."""

from __future__ import annotations

from collections.abc import Iterator

from builder.site.certificates import BEST_FIRST
from builder.site.page import Content, Page
from builder.site.stacks import StackPage


def paths(first: str, further: str, count: int, each: int) -> list[str]:
    """The pages of a list of so many entries: the first, and those with their number in `further`."""
    return [first, *(further.format(number) for number in range(2, -(-count // each) + 1))]


def of_stack_paths(stack: StackPage, each: int) -> list[str]:
    """The pages of a stack's certificates. The first is that of the stack."""
    # Not among the certificates: a file of any name is shown there.
    return paths(stack.page, f"stacks/{stack.name}/page-{{}}.html", len(stack.current), each)


def of_stack(stack: StackPage, each: int) -> Iterator[Page]:
    """Further pages of a stack with more certificates than one table shows."""
    pages = of_stack_paths(stack, each)
    for number, path in enumerate(pages[1:], start=1):
        listed = stack.current[number * each : (number + 1) * each]
        values = {"stack": stack, "listed": listed, "paths": pages, "number": number}
        yield Page(path, "list.html.j2", f"{stack.name}: certificates, page {number + 1}", values=values)


def all_of(content: Content, each: int) -> Iterator[Page]:
    """The certificates of all stacks; first those that somebody should look at."""
    entries = sorted(content.lists, key=lambda entry: -BEST_FIRST.index(entry.state))
    pages = paths("certificates.html", "certificates-{}.html", len(entries), each)
    for number, path in enumerate(pages):
        listed = entries[number * each : (number + 1) * each]
        title = "All certificates" + (f", page {number + 1}" if number else "")
        yield Page(path, "certificates.html.j2", title, values={"listed": listed, "paths": pages, "number": number})
