"""Print a deck to PDF with a Chromium of this machine: one page a slide, all fragments shown."""

import os
import shutil
from pathlib import Path

from course_lib.errors import UserError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")
TIME_LIMIT_MS = 60_000
# Root may not use Chromium's sandbox; the page is our own file, and the network is off.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
LAID_OUT = (
    "window.Reveal && Reveal.isReady() && "
    "document.querySelectorAll('.pdf-page').length === Reveal.getTotalSlides()"
)


def find_browser() -> str:
    """Return the Chromium to print with: `COURSE_BROWSER`, or the first that is installed.

    Raises:
        UserError: if there is none.
    """
    asked = os.environ.get("COURSE_BROWSER")
    for name in (asked,) if asked else BROWSERS:
        found = shutil.which(name)
        if found:
            return found
    raise UserError(
        f"No browser to print with ({asked or ', '.join(BROWSERS)}): install Chromium, or set "
        "COURSE_BROWSER to yours, or print from any browser with ?print-pdf after the address."
    )


def print_deck(deck: Path, pdf: Path) -> None:
    """Print the deck at `deck` (HTML) to `pdf`, when every slide has its page.

    Raises:
        UserError: if there is no browser, playwright is missing, or the deck does not lay out.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise UserError("PDF needs playwright: pip install 'course-lib[slides]'.") from error
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        try:
            page = browser.new_context(offline=True).new_page()
            page.goto(f"{deck.resolve().as_uri()}?print-pdf")
            page.wait_for_function(LAID_OUT, timeout=TIME_LIMIT_MS)
            page.evaluate("document.fonts.ready.then(() => 1)")
            page.pdf(path=str(pdf), prefer_css_page_size=True, print_background=True)
        except Error as error:
            raise UserError(f"{deck.name} could not be printed: {error.message[:300]}") from error
        finally:
            browser.close()
