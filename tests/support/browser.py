"""Chromium without a window, for tests of the console: the system's own, driven by Playwright."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Error, sync_playwright

from keylane_local import tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

TIMEOUT_MS = 60_000
"""Far more than a page takes: the machine may be busy."""
_ATTEMPTS = 3


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Yield the browser; skip the test where none is installed.

    Playwright runs an event loop in this thread until the end: other tests must not be in between.
    """
    program = tools.find_chromium()
    if program is None:
        pytest.skip("no Chromium is installed: `make setup-tests` installs it as root on Debian")
    with sync_playwright() as playwright:
        # Tests run as root in containers, where Chromium's own sandbox does not start.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page in a tab of its own; its errors, and violations of its policy, fail the test."""

    expected: str | None = None
    """What the text of an error has that is none."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self._context = browser.new_context(**options)
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self._take(message.type, message.text))

    def _take(self, kind: str, text: str) -> None:
        if kind == "error" and (self.expected is None or self.expected not in text):
            self.errors.append(text)

    def close(self) -> None:
        """Close the tab; fail if the page had errors."""
        self._context.close()
        assert self.errors == []


class ConsoleTab(Tab):
    """The console."""

    # Each failed request is one, also those that a test is about.
    expected = "Failed to load resource"

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        super().__init__(browser, **options)
        self._url = url

    def open(self, name: str, /, **query: str) -> Page:
        """Show a view of the console; return the page once it has its heading."""
        address = f"{self._url}/console/#/{name}" + (f"?{urlencode(query)}" if query else "")
        for attempt in range(1, _ATTEMPTS + 1):
            # Chromium drops requests when a network interface comes or goes, as other tests make them.
            try:
                self.page.goto(address)
                self.page.locator("main h1").wait_for(timeout=TIMEOUT_MS if attempt == _ATTEMPTS else 15_000)
                break
            except Error:
                if attempt == _ATTEMPTS:
                    raise
                self.page.goto("about:blank")
        return self.page
