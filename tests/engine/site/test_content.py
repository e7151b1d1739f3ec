"""What the pages say in a real browser: numbers, certificates in doubt, search, filters, comparisons."""

from __future__ import annotations

from selenium.webdriver.common.by import By

from builder.certify import certificate
from tests import site_reader
from tests.engine.browsing import Browser
from tests.engine.site.conftest import MOST, STACK, Served, words


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
        assert verdict in browser.first(".verdict").text
        assert browser.all(".verdict .certified, .verdict.certified") == []
        image = browser.first("img[src$='.svg']")
        assert browser.run("return arguments[0].naturalWidth", image) > 100
        assert "certified until" not in str(image.get_attribute("alt"))


def test_a_page_that_has_aged_says_that_a_certificate_has_expired(browser: Browser, served: Served) -> None:
    for page in (f"certificates/{STACK}/cpu-docker.html", f"stacks/{STACK}.html", "index.html"):
        browser.open(served.address + page)
        assert browser.shown("main .state.certified:not(dt .state)"), page
        with browser.day("2035-01-01"):
            browser.open(served.address + page)
        assert browser.shown("#matrix .certified, .scroll .certified, .verdict.certified") == [], page
        assert "expired" in browser.first("main").text


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
    having = "[...document.querySelectorAll('#matrix tbody tr')].filter(row => row.querySelector('.state.certified'))"
    certified = browser.run(f"return {having}.length")
    assert 1 <= certified < rows
    browser.fill("select[name=state]", "certified")
    browser.wait(f"document.querySelector('form output').textContent.startsWith('{certified} of')")
    browser.fill("select[name=state]", "")
    browser.wait(f"document.querySelector('form output').textContent.startsWith('{rows} of')")


def test_the_search_of_advisories_knows_their_details(browser: Browser, served: Served) -> None:
    browser.open(f"{served.address}advisories/index.html")
    assert "num_logits_to_keep" not in browser.first("#advisories").text
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
    browser.first("#results a").click()
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
    browser.first("#compare button").click()
    assert browser.first("#compare output").text == "Choose two different stacks."
    browser.fill("select[name=to]", "trl1.16-cu130")
    browser.first("#compare button").click()
    browser.wait("location.pathname.endsWith('/compare/trl1.16-cpu/trl1.16-cu130.html')")
    everything = len(browser.shown("#versions tbody tr"))
    browser.fill("select[name=state]", "added")
    browser.wait("[...document.querySelectorAll('#versions tbody tr')].some(row => row.hidden)")
    assert 0 < len(browser.shown("#versions tbody tr")) < everything
    assert set(words(browser, "#versions .part")) == {"added"}


def test_pages_open_as_files_and_the_search_says_what_it_needs(browser: Browser, served: Served) -> None:
    browser.open((served.folder / "index.html").as_uri())
    assert browser.run("return getComputedStyle(document.querySelector('.brand')).fontWeight") == "700"
    browser.fill("input[name=text]", "0.15.2")
    browser.wait("document.querySelector('form output').textContent.startsWith('1 of')")
    browser.open((served.folder / "search.html").as_uri())
    browser.fill("input[name=text]", "gradient")
    browser.wait("document.getElementById('search-state').textContent.includes('python3 -m http.server')")


def test_every_number_of_the_whole_site_is_the_one_at_its_place(served: Served) -> None:
    """With earlier certificates, charts and all."""
    checked = 0
    for path in served.folder.rglob("*.html"):
        for number in site_reader.read(path.read_text(encoding="utf-8")).numbers:
            assert site_reader.wrong(served.folder, number) == ""
            checked += 1
    assert checked > 1000
