"""The dashboard in a browser: what one sees and does, with and without the script, by eye and
by axe (https://github.com/dequelabs/axe-core)."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from tests.api.test_auth_served import create_token
from tests.support.database import sql
from tests.support.server import Server, wait_for

pytestmark = [
    pytest.mark.real_time,
    # The browser's driver leaves its event loop and pipes to the interpreter's end.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
HOSTILE = "<script>alert(1)</script>"
VIEWS = {
    "overview": "",
    "reservations": "/reservations",
    "reservation": "/reservations/row-7?version=3",
    "hold": "/reservations/cart-1",
    "objects": "/objects",
    "object": "/objects/EventSchedule/reports",
    "alarms": "/alarms",
    "alarm log": "/attempts",
    "schedules": "/schedules",
    "schedule": "/schedules/reports",
    "log": "/log?at=9&since=2",
    "live": "/live",
    "not found": "/reservations/never-held",
}


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with something of everything, and names and payloads that mean no good."""
    server = Server(tmp_path_factory.mktemp("dashboard")).start()
    for ttl_seconds in (600, 700, 800):
        server.hold("row-7", ttl_seconds)
    server.request("PUT", "/items/floor", b'{"capacity":10}')
    terms = {"ttlSeconds": 600, "owner": HOSTILE, "metadata": {"note": f'">{HOSTILE}'}}
    terms["lines"] = [{"item": "floor", "units": 1}]
    server.request("PUT", "/holds/cart-1", json.dumps(terms).encode())
    for name in ("reports", "%3Cscript%3Ealert(1)%3C%2Fscript%3E", "mail"):
        event = json.dumps({"runAt": int(time.time() * 1000) + 50, "payload": HOSTILE}).encode()
        server.request("PUT", f"/schedules/{name}/events/daily", event)
    wait_for(lambda: len(server.get("/alarms/attempts").json()["attempts"]) >= 2, 10)
    yield server
    server.ensure_gone()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing hostile may run, and no error be left."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    yield from _watched(context.new_page())
    context.close()


def _watched(page: Page) -> Iterator[Page]:
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda m: said.append(m.text) if "Content Security" in m.text else None)
    yield page
    assert said == []


def address(server: Server, path: str = "") -> str:
    return f"{server.url}/dashboard{path}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_of_the_dashboard_is_accessible(
    browser: Browser, served: Server, scheme: str
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 900})
    try:
        for page in _watched(context.new_page()):
            for name, path in VIEWS.items():
                page.goto(address(served, path))
                found = Axe().run(page)
                assert found.violations_count == 0, (name, found.generate_report())
    finally:
        context.close()


def test_no_view_is_wider_than_a_phone(browser: Browser, served: Server) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 700})
    try:
        for page in _watched(context.new_page()):
            for name, path in VIEWS.items():
                page.goto(address(served, path))
                width = page.evaluate("document.documentElement.scrollWidth")
                assert width <= 375, (name, width)
    finally:
        context.close()


def test_every_view_works_without_the_script(browser: Browser, served: Server) -> None:
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        for path in VIEWS.values():
            page.goto(address(served, path))
            expect(page.locator("main h1")).to_be_visible()
        page.goto(address(served, "/reservations/row-7?version=2"))
        page.get_by_role("link", name="Version 3", exact=True).click()
        expect(page.locator("h2").first).to_have_text("After version 3 of 6")
        page.goto(address(served, "/reservations"))
        page.get_by_label("Name begins with").fill("cart")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("rowheader")).to_have_text(["cart-1"])
    finally:
        context.close()


def test_a_hold_is_seen_to_expire(page: Page, served: Server) -> None:
    served.hold("watched", 5)
    page.goto(address(served, "/reservations/watched"))
    expect(page.locator(".lead")).to_contain_text("held")
    expect(page.locator(".lead")).to_contain_text("expired", timeout=12_000)
    expect(page.locator("h2").first).to_have_text("After version 3 of 3")
    expect(page.get_by_role("region", name="Attempts at alarms")).to_contain_text("ok")


def test_one_goes_through_time_with_the_arrow_keys(page: Page, served: Server) -> None:
    page.goto(address(served, "/reservations/row-7"))
    slider = page.get_by_role("slider", name="Version")
    slider.focus()
    for version in (5, 4, 3):
        slider.press("ArrowLeft")
        expect(page.locator("h2").first).to_have_text(f"After version {version} of 6")
        assert page.url.endswith(f"version={version}")
    expect(slider).to_be_focused()
    expect(page.locator(".timeline .here")).to_contain_text("3 · Held")
    page.reload()
    expect(page.locator("h2").first).to_have_text("After version 3 of 6")


def test_the_whole_log_is_seen_at_another_moment(page: Page, served: Server) -> None:
    page.goto(address(served, "/log"))
    page.get_by_role("slider", name="After position").focus()
    page.keyboard.press("Home")
    expect(page.locator("h2").first).to_contain_text("After 0 of")
    expect(page.get_by_role("row", name="held 0")).to_be_visible()


def test_a_parked_alarm_is_re_driven_with_a_click(page: Page, served: Server) -> None:
    served.hold("given-up", 600)
    sql(served.database, "UPDATE alarms SET next_run_time = NULL WHERE id LIKE '%/given-up'")
    page.goto(address(served, "/alarms?state=parked"))
    page.get_by_role("button", name="Re-drive given-up").click()
    expect(page.get_by_text("It is re-driven")).to_be_visible()
    expect(page.get_by_text("No alarm is parked.")).to_be_visible()


def test_events_are_followed_live_paused_and_resumed(page: Page, served: Server) -> None:
    page.goto(address(served, "/live"))
    expect(page.get_by_text("Following the log.")).to_be_visible()
    first = page.locator("tbody tr").first
    served.hold("live-1", 600)
    expect(first).to_contain_text("live-1")
    page.get_by_role("button", name="Pause").click()
    served.hold("live-2", 600)
    expect(page.get_by_text("Paused; 2 new.")).to_be_visible()
    expect(first).to_contain_text("live-1")
    page.get_by_role("button", name="Resume").click()
    expect(first).to_contain_text("live-2")
    first.get_by_role("link").click()
    expect(page.locator("h1")).to_have_text("live-2")


def test_a_service_that_goes_and_comes_back_is_told_of(page: Page, tmp_path: Path) -> None:
    server = Server(tmp_path).start()
    try:
        server.hold("seat-1", 600)
        page.goto(address(server, "/reservations/seat-1"))
        server.kill()
        lost = page.get_by_text("The connection is lost; what you see is old.")
        expect(lost).to_be_visible(timeout=10_000)
        expect(page.locator(".lead")).to_contain_text("held")
        server.start()
        expect(lost).to_be_hidden(timeout=10_000)
    finally:
        server.ensure_gone()


def test_one_signs_in_with_a_token_and_out_again(page: Page, tmp_path: Path) -> None:
    server = Server(tmp_path, "--auth", "required")
    server.start(wait=False)
    wait_for(server.lives, 20)
    try:
        token = create_token(server.database, "reader", "read")
        time.sleep(1)  # within which every process knows it
        page.goto(address(server, "/alarms"))
        assert page.url == address(server, "/login")
        page.get_by_label("Token").fill("rxt_nonsense")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("not known")
        assert Axe().run(page).violations_count == 0
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("reader · read")).to_be_visible()
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert token not in cookie["value"]
        page.goto(address(server, "/live"))
        expect(page.get_by_text("Following the log.")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        page.goto(address(server))
        assert page.url == address(server, "/login")
    finally:
        server.ensure_gone()
