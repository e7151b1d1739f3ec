"""The page in a real browser: search, filters, themes, phones, keyboard, accessibility, and certificates in doubt."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from builder.base.project import Project
from builder.certify import certificate, judgement
from builder.intent import advisory as advisories
from builder.lock import lockfile
from builder.site import site
from tests import commits, site_reader
from tests.conftest import ROOT
from tests.engine import browsing
from tests.engine.browsing import DESKTOP, PHONE, SMALLEST, Browser

STACK = "trl1.16-cpu"
MOST = 300_000  # bytes that a page may load
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@dataclass(frozen=True)
class Served:
    """A site below a path of a web server."""

    folder: Path
    address: str

    def pages(self) -> list[str]:
        """One page of every kind."""
        certificates = sorted(self.folder.glob(f"certificates/{STACK}/*.html"))
        chosen = {path.stem.partition("-docker-")[0]: path.relative_to(self.folder).as_posix() for path in certificates}
        advisory = min(path.name for path in (self.folder / "advisories").glob("VETTED-*.html"))
        other = min(path.name for path in (self.folder / "compare" / STACK).iterdir())
        return [
            "index.html", f"stacks/{STACK}.html", *chosen.values(), "compare/index.html", f"compare/{STACK}/{other}",
            "advisories/index.html", f"advisories/{advisory}", "gpus.html", "suite.html", "verify.html", "search.html",
        ]  # fmt: skip


def spoiled(root: Path) -> Project:
    """A copy of this project with a past, and with certificates of every kind of doubt."""
    for folder in ("advisories", "lockfiles", "images", "runtime", "smoke", "docs"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    project, path = Project(root), root / "lockfiles" / STACK / "certificates" / "cpu-docker.json"
    today = path.read_text()
    document = json.loads(today)
    commits.git(root, "init", "--quiet")
    for step in (1, 2, 3):
        for probe in document["predicate"]["probes"]:
            probe["seconds"] *= 1.5
            for number in probe["measurements"][: step % 2]:
                number["value"] += 0.001
        path.write_text(certificate.Statement.model_validate(document).to_json())
        commits.commit(root, path, f"2026-11-0{step}")
    path.write_text(today)
    statement = certificate.read(path)
    old = statement.dated(datetime.date(2026, 1, 5))
    path.with_name("cpu-expired.json").write_text(old.to_json())
    for advisory in advisories.load_all(project):  # else one would withdraw what is old
        if judgement.withdraws(advisory, old, lockfile.load(project, STACK).versions):
            (root / "advisories" / f"{advisory.id}.toml").unlink()
    document = json.loads(today)
    document["predicate"]["probes"][0]["measurements"][0]["value"] = 0.25
    path.with_name("cpu-forged.json").write_text(certificate.Statement.model_validate(document).to_json())
    path.with_name("cpu-broken.json").write_text("{}")
    return project


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("site")
    project = spoiled(root / "project")
    (root / "scratch").mkdir()
    content = site.read(project, root / "scratch", lambda _: None)
    site.make(content, root / "server" / "some" / "path", lambda _: None)
    with browsing.serving(root / "server") as address:
        yield Served(root / "server" / "some" / "path", f"{address}some/path/")


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browsing.browser() as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Browser:
    opened.size(DESKTOP)
    opened.scheme("light")
    opened.open("about:blank")
    opened.problems()
    opened.requests()
    return opened


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return browsing.axe(tmp_path_factory.mktemp("axe"))


def words(browser: Browser, selector: str) -> list[str]:
    return [element.text.strip() for element in browser.shown(selector)]


def test_every_page_loads_little_and_nothing_from_elsewhere(browser: Browser, served: Served) -> None:
    for page in served.pages():
        browser.open("about:blank")
        browser.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
        browser.requests()
        browser.open(served.address + page)
        addresses, size = browser.requests()
        assert {each for each in addresses if not each.startswith((served.address, "about:"))} == set(), page
        assert 0 < size < MOST, f"{page}: {size}"
        assert browser.problems() == [], page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_nothing_to_say(browser: Browser, served: Served, axe: str, scheme: str) -> None:
    browser.scheme(scheme)
    broken = {}
    for page in served.pages():
        for size in (DESKTOP, PHONE) if page in ("index.html", "search.html") else (PHONE,):
            browser.size(size)
            browser.open(served.address + page)
            browser.run(axe)
            results = browser.driver.execute_async_script(
                "const done = arguments[arguments.length - 1];"
                "axe.run(document, {runOnly: arguments[0], resultTypes: ['violations']}).then(done)", RULES
            )  # fmt: skip
            if violations := [
                (each["id"], [node["html"][:120] for node in each["nodes"]][:3]) for each in results["violations"]
            ]:
                broken[page] = violations
    assert broken == {}


def test_axe_notices_a_page_that_is_not_accessible(browser: Browser, served: Served, axe: str) -> None:
    browser.open(f"{served.address}index.html")
    browser.run("const select = document.querySelector('select'); select.closest('label').replaceWith(select)")
    browser.run(axe)
    results = browser.driver.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")
    assert "select-name" in {each["id"] for each in results["violations"]}


@pytest.mark.parametrize("size", [SMALLEST, PHONE])
def test_no_page_is_wider_than_a_phone(browser: Browser, served: Served, size: tuple[int, int]) -> None:
    browser.size(size)
    for page in served.pages():
        browser.open(served.address + page)
        assert browser.run("return document.documentElement.scrollWidth") <= size[0], page


def test_nothing_moves_while_a_page_loads(browser: Browser, served: Served) -> None:
    """A filter that a script showed late would push down what a reader has begun to read."""
    browser.size(PHONE)
    shifts = (
        "const done = arguments[0]; let sum = 0;"
        "new PerformanceObserver(list => { for (const each of list.getEntries()) sum += each.value })"
        ".observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 300)"
    )
    for page in ("index.html", "advisories/index.html", f"certificates/{STACK}/cpu-docker.html", "search.html"):
        browser.open(served.address + page)
        assert browser.driver.execute_async_script(shifts) == 0, page


def test_the_navigation_leads_to_every_part(browser: Browser, served: Served) -> None:
    browser.open(served.address)
    names = words(browser, "nav a")
    assert names == ["Matrix", "Compare", "Advisories", "GPUs", "Suite", "Verify", "Search"]
    for name in names:
        browser.driver.find_element(By.LINK_TEXT, name).click()
        assert words(browser, "nav a[aria-current=page]") == [name]
        assert len(words(browser, "h1")) == 1


def test_the_keyboard_reaches_everything(browser: Browser, served: Served) -> None:
    browser.open(f"{served.address}index.html")
    first = browser.driver.switch_to.active_element
    first.send_keys(Keys.TAB)
    skip = browser.driver.switch_to.active_element
    assert skip.text == "Skip to the content"
    skip.send_keys(Keys.ENTER)
    assert browser.run("return location.hash") == "#main"
    browser.open(f"{served.address}index.html")
    reachable = browser.run("return document.querySelectorAll('a[href],button,input,select,summary,[tabindex]').length")
    visited = set()
    for _ in range(reachable + 10):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.driver.switch_to.active_element
        if active.tag_name == "body":
            break
        visited.add(active.id)
    shown = [each for each in browser.all("a[href],button,input,select,summary,[tabindex='0']") if each.is_displayed()]
    assert visited >= {each.id for each in shown}


def test_the_theme_is_the_systems_until_the_reader_chooses(browser: Browser, served: Served) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    browser.open(f"{served.address}index.html")
    browser.run("localStorage.clear()")
    light = browser.run(background)
    browser.scheme("dark")
    dark = browser.run(background)
    assert light != dark
    button = browser.one("#theme")
    button.click()
    assert (button.text, browser.run(background)) == ("Theme: light", light)
    browser.open(f"{served.address}suite.html")
    assert (browser.one("#theme").text, browser.run(background)) == ("Theme: light", light)
    browser.scheme("light")
    browser.one("#theme").click()
    assert (browser.one("#theme").text, browser.run(background)) == ("Theme: dark", dark)
    browser.one("#theme").click()
    assert (browser.one("#theme").text, browser.run(background)) == ("Theme: auto", light)


def test_charts_are_drawn_in_the_colours_of_the_theme(browser: Browser, served: Served) -> None:
    filled = (
        "return [...document.querySelectorAll('.chart svg')].map(svg => [svg.getBoundingClientRect().width,"
        " new Set([...svg.querySelectorAll('path,text')].map(e => getComputedStyle(e).fill)).size,"
        " getComputedStyle(svg.querySelector('text')).fill])"
    )
    colours = []
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.open(f"{served.address}suite.html")
        drawn = browser.run(filled)
        assert len(drawn) == 3
        assert all(width > 200 and fills > 2 for width, fills, _ in drawn)
        colours.append([text for _, _, text in drawn])
    assert colours[0] != colours[1]


def test_the_pictures_of_numbers_say_what_the_numbers_say(browser: Browser, served: Served) -> None:
    browser.open(f"{served.address}certificates/{STACK}/cpu-forged.html")
    rows = browser.run(
        "return [...document.querySelectorAll('.probe tbody tr')].filter(r => r.querySelector('.bullet')).map(r => {"
        " const dot = r.querySelector('circle').getBoundingClientRect(), middle = dot.x + dot.width / 2;"
        " const zone = r.querySelector('.zone').getBoundingClientRect();"
        " return [r.querySelector('data').value, r.cells[2].textContent, r.querySelector('.outside') !== null,"
        "   middle >= zone.left - 1 && middle <= zone.right + 1] })"
    )
    assert len(rows) > 200
    outside = [row for row in rows if row[2]]
    assert [row[0] for row in outside] == ["0.25"]
    for _, _, marked, drawn_inside in rows:
        assert marked != drawn_inside


def test_doubtful_certificates_are_shown_as_such(browser: Browser, served: Served) -> None:
    browser.open(f"{served.address}index.html")
    doubts = " ".join(words(browser, ".doubts li"))
    assert "cpu-forged" in doubts and "outside its bound" in doubts
    assert "cpu-expired" in doubts and "it expired on 2026-04-05" in doubts
    assert "cpu-broken.json" in doubts and "not a certificate" in doubts
    for name, verdict in (("forged", "Do not rely on it."), ("expired", "It expired on 2026-04-05")):
        browser.open(f"{served.address}certificates/{STACK}/cpu-{name}.html")
        assert verdict in browser.one(".verdict").text
        assert browser.all(".verdict .certified, .verdict.certified") == []
        image = browser.one("img[src$='.svg']")
        assert browser.run("return arguments[0].naturalWidth", image) > 100
        assert "certified until" not in str(image.get_attribute("alt"))


def test_a_page_that_has_aged_says_that_a_certificate_has_expired(browser: Browser, served: Served) -> None:
    for page in (f"certificates/{STACK}/cpu-docker.html", f"stacks/{STACK}.html", "index.html"):
        browser.open(served.address + page)
        assert browser.shown("main .state.certified:not(dt .state)"), page
        with browser.day("2035-01-01"):
            browser.open(served.address + page)
        assert browser.shown("#matrix .certified, .scroll .certified, .verdict.certified") == [], page
        assert "expired" in browser.one("main").text


def test_the_matrix_on_another_day(browser: Browser, served: Served) -> None:
    browser.open(f"{served.address}index.html")
    cell = f"//tr[th/a[text()='{STACK}']]//span[@data-spans]"

    def word(day: str) -> str:
        browser.fill("input[name=day]", day)
        browser.wait(f"document.getElementById('shown-day').textContent === '{day}'")
        return browser.driver.find_element(By.XPATH, cell).text

    today = str(certificate.today())
    assert word(today) == "certified"
    assert word("2035-01-01") == "expired"
    assert word("2026-02-01") == "certified"  # the one that expired in April was in force
    assert word("2025-01-01") == "built"
    assert word(today) == "certified"


def test_filters_of_the_matrix(browser: Browser, served: Served) -> None:
    browser.open(f"{served.address}index.html")
    rows = len(words(browser, "#matrix tbody tr"))
    browser.fill("select[name=device]", "cpu")
    browser.wait("document.querySelector('form output').textContent.startsWith('1 of')")
    assert words(browser, "#matrix tbody th a") == [STACK]
    browser.fill("select[name=device]", "")
    browser.fill("input[name=text]", "0.15.2")
    browser.wait("document.querySelector('form output').textContent.startsWith('1 of')")
    assert words(browser, "#matrix tbody th a") == ["trl0.15-cu124"]
    browser.fill("input[name=text]", "")
    browser.fill("select[name=state]", "certified")
    browser.wait("document.querySelector('form output').textContent.startsWith('1 of')")
    browser.fill("select[name=state]", "")
    browser.wait(f"document.querySelector('form output').textContent.startsWith('{rows} of')")


def test_the_search_of_advisories_knows_their_details(browser: Browser, served: Served) -> None:
    browser.open(f"{served.address}advisories/index.html")
    assert "num_logits_to_keep" not in browser.one("#advisories").text
    browser.fill("input[name=text]", "num_logits_to_keep")
    browser.wait("document.querySelector('form output').textContent !== ''")
    shown = words(browser, "#advisories tbody th")
    assert "VETTED-0001" in shown and len(shown) < 10
    browser.fill("input[name=text]", "")
    browser.fill("select[name=state]", "hang")
    browser.wait("[...document.querySelectorAll('#advisories tbody tr')].some(row => row.hidden)")
    assert set(words(browser, "#advisories tbody td .severity")) == {"hang"}
    browser.fill("input[name=text]", "qwertzuiop")
    browser.wait("document.querySelector('form output').textContent.startsWith('0 of')")


def test_the_search_over_all_pages(browser: Browser, served: Served) -> None:
    browser.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    browser.open(f"{served.address}search.html?text=num_logits_to_keep")
    browser.wait("document.querySelector('#results a') !== null")
    browser.one("#results a").click()
    assert browser.driver.current_url.startswith(f"{served.address}advisories/VETTED-")
    browser.open(f"{served.address}search.html")
    browser.requests()
    browser.fill("input[name=text]", "expired")
    browser.wait("document.getElementById('search-state').textContent !== ''")
    addresses, size = browser.requests()
    assert addresses and all(address.startswith(served.address) for address in addresses)
    assert size < MOST
    browser.fill("select[name=kind]", "certificate")
    browser.wait("[...document.querySelectorAll('#results a')].every(a => a.href.includes('/certificates/'))")
    browser.fill("input[name=text]", "qwertzuiop")
    browser.wait("document.getElementById('search-state').textContent === '0 results'")
    assert browser.problems() == []


def test_two_stacks_are_compared(browser: Browser, served: Served) -> None:
    browser.open(f"{served.address}compare/index.html")
    browser.fill("select[name=from]", STACK)
    browser.fill("select[name=to]", STACK)
    browser.one("#compare button").click()
    assert browser.one("#compare output").text == "Choose two different stacks."
    browser.fill("select[name=to]", "trl1.16-cu130")
    browser.one("#compare button").click()
    browser.wait("location.pathname.endsWith('/compare/trl1.16-cpu/trl1.16-cu130.html')")
    everything = len(browser.shown("#versions tbody tr"))
    browser.fill("select[name=state]", "added")
    browser.wait("[...document.querySelectorAll('#versions tbody tr')].some(row => row.hidden)")
    assert 0 < len(browser.shown("#versions tbody tr")) < everything
    assert set(words(browser, "#versions .part")) == {"added"}


def test_without_scripts_every_page_is_complete(browser: Browser, served: Served) -> None:
    browser.scripts(False)
    try:
        for page in served.pages():
            browser.open(served.address + page)
            assert browser.shown("h1") and browser.shown("main p"), page
            assert browser.shown("form, #theme") == [], page
    finally:
        browser.scripts(True)


def test_pages_open_as_files_and_the_search_says_what_it_needs(browser: Browser, served: Served) -> None:
    browser.open((served.folder / "index.html").as_uri())
    assert browser.run("return getComputedStyle(document.querySelector('.brand')).fontWeight") == "700"
    browser.fill("input[name=text]", "0.15.2")
    browser.wait("document.querySelector('form output').textContent.startsWith('1 of')")
    browser.open((served.folder / "search.html").as_uri())
    browser.fill("input[name=text]", "gradient")
    browser.wait("document.getElementById('search-state').textContent.includes('python3 -m http.server')")


def test_a_command_is_copied(browser: Browser, served: Served) -> None:
    browser.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    browser.open(f"{served.address}verify.html")
    button = browser.one(".command button")
    button.click()
    browser.wait("document.querySelector('.command button').textContent === 'Copied'")


def test_every_number_of_the_whole_site_is_the_one_at_its_place(served: Served) -> None:
    """With earlier certificates, charts and all."""
    checked = 0
    for path in served.folder.rglob("*.html"):
        for number in site_reader.read(path.read_text(encoding="utf-8")).numbers:
            assert site_reader.wrong(served.folder, number) == ""
            checked += 1
    assert checked > 1000
