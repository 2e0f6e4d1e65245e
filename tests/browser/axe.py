"""Accessibility checks of a page with axe-core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from axe_playwright_python.base import AXE_FILE_PATH

if TYPE_CHECKING:
    from playwright.sync_api import Page

_RUN = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.map(({ id, impact, help, nodes }) => ({
    id, impact, help,
    nodes: nodes.map((node) => ({ html: node.html.slice(0, 200), why: node.failureSummary })),
  }));
}"""
_IMPACTS = {"serious", "critical"}


def serious(page: Page) -> list[str]:
    """Violations that are serious or critical, a line each, with the elements and what axe says of them."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_FILE_PATH.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = page.evaluate(_RUN)
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {node['html']}: {node['why']}"
        for each in found
        if each["impact"] in _IMPACTS
        for node in each["nodes"][:5]
    ]
