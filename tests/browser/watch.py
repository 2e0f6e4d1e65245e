"""A browser tab that records errors, and checks that apply to every page."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from playwright.sync_api import Error, expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, Response

ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    # Chromium loads these popups of its address bar with each new window: 0.2 s beside the page.
    # This option replaces the one of Playwright, of which the others are.
    "--disable-features=HttpsUpgrades,MediaRouter,OptimizationHints,PaintHolding,"
    "WebUIOmniboxAimPopup,WebUIOmniboxPopup",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)
"""Arguments of Chromium."""
WIDE, NARROW = 1_440, 900
_VIOLATIONS = """
window.tracekitViolations = [];
document.addEventListener("securitypolicyviolation", (event) => window.tracekitViolations.push(
  `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
_DRAWN = """
const drawn = new CSSStyleSheet();
drawn.replaceSync(".ag-root-wrapper { content-visibility: visible !important; }");
document.adoptedStyleSheets = [drawn];
"""
"""Draws grids that are out of view, so that a page is complete when it is checked."""
_GO = """(url) => {
  history.pushState({}, "", url);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
_UNFINISHED = ",".join(
    (
        '.tk-block[aria-busy="true"]',
        ".dash-graph--pending",
        ".ag-header-row:empty:visible",
        ".ag-center-cols-container:empty:visible",
        ".ag-root:has(.ag-row) .ag-delay-render",
    )
)
"""Blocks, charts and grids that are yet to be computed or drawn."""
_REVEAL = """async () => {
  for (let left = 50; left; left -= 1) {
    const node = [...document.querySelectorAll(".tk-later")].find((one) => one.checkVisibility());
    if (!node) break;
    node.scrollIntoView();
    await new Promise((done) => { setTimeout(done, 40); });
  }
  scrollTo(0, 0);
}"""
"""Scrolls to each chart and grid that is made once it is near the window, and back."""
_RESTED = "() => new Promise((done) => setTimeout(() => requestIdleCallback(done, { timeout: 1000 }), 50))"
"""Waits until the page has nothing to do, at most for less than the period of its requests for new runs."""
_LONGEST_S = 30
"""Longest wait for a page to rest."""
_FITS = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
_WIDTHS = """() => {
  const limit = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= limit) return [];
  return [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > limit + 1)
    .map((one) => `${one.tagName}#${one.id}.${one.className} ${one.getBoundingClientRect().right}`)
    .slice(0, 5).concat(`document is ${document.documentElement.scrollWidth} wide`);
}"""


@dataclass
class Watch:
    """A tab, and its troubles.

    Attributes:
        page: The tab.
        address: The only server it may speak to.
        troubles: Console errors, page errors, outside requests and failed answers, in order.
        pending: Requests that are yet to be answered.
        asked: How many requests there have been.
        levels: Kinds of messages on the console that are troubles.
    """

    page: Page
    address: str
    troubles: list[str] = field(default_factory=list)
    pending: set[Request] = field(default_factory=set)
    asked: int = 0
    levels: set[str] = field(default_factory=lambda: {"assert", "error"})

    @classmethod
    def of(cls, context: BrowserContext, address: str) -> Watch:
        """A new tab, watched from the start."""
        watch = cls(context.new_page(), address)
        page = watch.page
        watch.forget()
        page.add_init_script(_VIOLATIONS + _DRAWN)
        page.on("console", watch._console)
        page.on("pageerror", lambda error: watch.troubles.append(f"page error: {error}"))
        page.on("request", watch._request)
        page.on("response", watch._response)
        page.on("requestfinished", watch._ended)
        page.on("requestfailed", watch._ended)
        page.on("dialog", watch._dialog)
        return watch

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in self.levels:
            self.troubles.append(f"console: {message.text[:500]} at {message.location.get('url')}")

    def _request(self, request: Request) -> None:
        self.asked += 1
        self.pending.add(request)
        if not request.url.startswith((self.address + "/", "data:", "blob:")):
            self.troubles.append(f"outside request: {request.url[:200]}")

    def _ended(self, request: Request) -> None:
        self.pending.discard(request)

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.troubles.append(f"answer {response.status}: {response.url[:200]}")

    def _dialog(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message[:200]}")
        dialog.dismiss()

    def forget(self) -> None:
        """Remove what pages of the server have stored in the browser, and the troubles so far."""
        session = self.page.context.new_cdp_session(self.page)
        stored = {"origin": self.address, "storageTypes": "cookies,indexeddb,local_storage"}
        session.send("Storage.clearDataForOrigin", stored)
        session.detach()
        self.troubles.clear()

    def open(self, url: str) -> Page:
        """Go to an address and wait until its page is complete."""
        self.page.goto(url)
        self.settled()
        return self.page

    def go(self, url: str, title: str) -> Page:
        """Go to an address of a page as `leave` does, and wait until the page of this title is complete."""
        self.pending.clear()  # the page that is left may still wait for an answer
        leave(self.page, url)
        expect(self.page.locator("#page h1")).to_have_text(title)
        self.settled()
        return self.page

    def resize(self, width: int) -> None:
        """Give the window another width and wait until charts and grids have followed."""
        self.page.set_viewport_size({"width": width, "height": 900})
        with contextlib.suppress(Error):  # `unsound` tells what does not fit
            self.page.wait_for_function(_FITS, polling=50)  # a tab in the background draws no frames

    def settled(self) -> None:
        """Wait until the page has a heading, no block is being computed and nothing is being fetched."""
        expect(self.page.locator("#page h1")).to_be_visible()
        expect(self.page.locator(_UNFINISHED)).to_have_count(0)
        self.page.evaluate(_REVEAL)
        self._rested()
        expect(self.page.locator(_UNFINISHED)).to_have_count(0)

    def _rested(self) -> None:
        """Wait until every request is answered and what follows from the answers asks for nothing more."""
        before, latest = -1, time.monotonic() + _LONGEST_S
        while (self.pending or before != self.asked) and time.monotonic() < latest:
            before = self.asked
            self.page.evaluate(_RESTED)

    def through_the_menu(self) -> Iterator[str]:
        """Go to each page that the menu lists, also folded; gives the titles once each page is complete."""
        titles = self.page.locator("#menu a").all_text_contents()
        for title in titles:
            self.pending.clear()  # as in `go`
            self.page.locator("#menu a").get_by_text(title, exact=True).evaluate("link => link.click()")
            expect(self.page.locator("#page h1")).to_have_text(title)
            self.settled()
            yield title

    def unsound(self) -> list[str]:
        """What may be on no page: a block that failed, another heading, more width than the window's."""
        troubles = self.page.locator(".tk-error").all_inner_texts()
        headings = self.page.locator("#page h1").all_inner_texts()
        return [
            *([f"headings: {headings}"] if len(headings) != 1 else []),
            *(text for text in troubles if "not comparable" not in text),
            *self.page.evaluate(_WIDTHS),
        ]

    def quiet(self) -> None:
        """Nothing went wrong in this tab."""
        violations = self.page.evaluate("window.tracekitViolations || []")
        found = self.troubles + [f"policy: {each}" for each in violations]
        assert not found, "\n".join(found)


def leave(page: Page, url: str) -> None:
    """Go to an address without loading the document again, as Back does; the page there is not waited for."""
    page.bring_to_front()  # little is drawn in a tab behind another
    page.evaluate(_GO, url)
