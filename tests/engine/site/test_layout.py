"""The pages in a real browser: what they load, accessibility, phones, themes, the keyboard, no scripts."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.engine.browsing import DESKTOP, PHONE, SMALLEST, Browser
from tests.engine.site.conftest import MOST, STACK, Served, words

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


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
    # A slow line: a browser paints what it has, and what comes later must not move it.
    slow = {"offline": False, "latency": 20, "downloadThroughput": 100_000, "uploadThroughput": 100_000}
    browser.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
    try:
        certificate = f"certificates/{STACK}/cpu-docker.html"
        for page in ("index.html", "advisories/index.html", certificate, "gpus.html", "search.html"):
            browser.open(served.address + page)
            assert browser.driver.execute_async_script(shifts) == 0, page
    finally:
        any_speed = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", any_speed)


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
    button = browser.first("#theme")
    button.click()
    assert (button.text, browser.run(background)) == ("Theme: light", light)
    browser.open(f"{served.address}suite.html")
    assert (browser.first("#theme").text, browser.run(background)) == ("Theme: light", light)
    browser.scheme("light")
    browser.first("#theme").click()
    assert (browser.first("#theme").text, browser.run(background)) == ("Theme: dark", dark)
    browser.first("#theme").click()
    assert (browser.first("#theme").text, browser.run(background)) == ("Theme: auto", light)


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


def test_without_scripts_every_page_is_complete(browser: Browser, served: Served) -> None:
    browser.scripts(False)
    try:
        for page in served.pages():
            browser.open(served.address + page)
            assert browser.shown("h1") and browser.shown("main p"), page
            assert browser.shown("form, #theme") == [], page
    finally:
        browser.scripts(True)


def test_a_command_is_copied(browser: Browser, served: Served) -> None:
    browser.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    browser.open(f"{served.address}verify.html")
    button = browser.first(".command button")
    button.click()
    browser.wait("document.querySelector('.command button').textContent === 'Copied'")
