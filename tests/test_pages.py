"""Pages in a browser: nothing is cut, overlaps, or is asked of the network."""

import dataclasses
import io
import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from make_machines import machine
from playwright.sync_api import Browser, Dialog, Page, Request, sync_playwright
from rich.console import Console
from synthetic import as_read, make_environment
from test_reporting import NASTY, nasty_plan, nasty_turns, report_of

from bench.analysis.effects import effects
from bench.comparing import compare_runs
from bench.publishing import README
from bench.records.effects import write_effects
from bench.records.measurements import read_measurements
from bench.records.run_folder import RunFolder
from bench.reporting import model, readme
from bench.reporting.html import html

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
pytestmark = pytest.mark.skipif(
    not CHROMIUM, reason="needs Chromium or Chrome: apt-get install chromium"
)

PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="720pt" height="200pt" viewBox="0 0 720 200">'
    '<rect width="720" height="200" fill="white"/><script>alert(2)</script></svg>'
)
"""Stands for a real one, which other tests look at."""

WIDTHS = (400, 900, 1400)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

TEXTS = """
const hidden = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const style = getComputedStyle(each);
    if (style.clipPath !== 'none' || style.visibility === 'hidden') return true;
    if (each.matches('.skip:not(:focus)')) return true;
  }
  return false;
};
const block = (element) => {
  while (getComputedStyle(element).display === 'inline') element = element.parentElement;
  return element;
};
const texts = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, parent = node.parentElement;
  if (!node.data.trim() || parent.closest('style') || hidden(parent)) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  const boxes = [...range.getClientRects()].filter((box) => box.width > 1 && box.height > 1);
  if (boxes.length) texts.push({node, parent, boxes});
}
"""

CUT = (
    TEXTS
    + """
const found = [];
for (const {node, parent, boxes} of texts) {
  const around = block(parent).getBoundingClientRect();
  for (const box of boxes)
    if (box.left < around.left - 1 || box.right > around.right + 1 || box.left < 0
        || box.right > innerWidth)
      found.push(node.data.trim().slice(0, 60));
  for (let each = parent; each !== document.body; each = each.parentElement) {
    const style = getComputedStyle(each);
    const clips = ['hidden', 'clip'].includes(style.overflowX) || style.textOverflow === 'ellipsis';
    if (clips && (each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight))
      found.push('clipped: ' + node.data.trim().slice(0, 60));
  }
}
return found;
"""
)

OVERLAPS = (
    TEXTS
    + """
const boxes = [];
for (const {node, parent, boxes: its} of texts) {
  if (parent.closest('nav')?.scrollHeight > parent.closest('nav')?.clientHeight) continue;
  for (const box of its) {
    // A line's box is higher than its letters.
    const trim = box.height / 4;
    boxes.push({left: box.left + 1, right: box.right - 1, top: box.top + trim,
                bottom: box.bottom - trim, what: node.data.trim().slice(0, 50)});
  }
}
for (const drawing of document.querySelectorAll('img, svg.strip')) {
  const box = drawing.getBoundingClientRect();
  if (box.width) boxes.push({left: box.left + 1, right: box.right - 1, top: box.top + 1,
                             bottom: box.bottom - 1, what: drawing.tagName});
}
boxes.sort((one, other) => one.top - other.top);
const found = [];
boxes.forEach((one, index) => {
  for (let next = index + 1; next < boxes.length && boxes[next].top < one.bottom; next++) {
    const other = boxes[next];
    if (one.left < other.right && other.left < one.right) found.push([one.what, other.what]);
  }
});
return found;
"""
)

FAINT = (
    TEXTS
    + """
const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((each) => {
    each /= 255;
    return each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const found = {};
for (const {node, parent} of texts) {
  let behind = parent, colour = [0, 0, 0, 0];
  for (; behind && colour[3] === 0; behind = behind.parentElement) {
    const [r, g, b, alpha = 1] = parse(getComputedStyle(behind).backgroundColor);
    colour = [r, g, b, alpha];
  }
  const [light, dark] = [luminance(parse(getComputedStyle(parent).color)), luminance(colour)]
    .sort((one, other) => other - one);
  const contrast = (light + 0.05) / (dark + 0.05);
  if (contrast < 4.5) found[contrast.toFixed(2)] = node.data.trim().slice(0, 50);
}
return found;
"""
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=["nasty", "published", "compared", "machines"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports with texts of the worst kind and of the run which the README shows; comparisons."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param in ("compared", "machines"):
        return compared(folder, {"compared": 3, "machines": 8}[request.param])
    if request.param == "nasty":
        plan = nasty_plan()
        built = report_of(plan, as_read(nasty_turns(plan, noise=0.05)))
        figures = folder / "figures"
        figures.mkdir()
        for name in ("overview", "course", *(tip.picture for tip in built.tips)):
            (figures / f"{name}.svg").write_text(PICTURE)
    else:
        shown = readme.published_folder(README.read_text(encoding="utf-8"))
        run = RunFolder.existing(README.parent / shown)
        plan, environment = run.read_plan(), run.read_environment()
        measurements = read_measurements(run.measurements)
        rows = effects(measurements, plan, environment)
        built = model.build(plan, environment, measurements, rows)
        figures = run.path / "figures"
    path = folder / "report.html"
    path.write_text(html(built, figures), encoding="utf-8")
    return path


def compared(folder: Path, number: int) -> Path:
    """The page over ``number`` runs, some of their texts of the worst kind."""
    tips = {"tip": 1.2, "parallel_preprocessing": 1.8, "解码器" * 20: 0.01, NASTY: 50.0}
    paths = [folder / f"{place}.csv" for place in range(number)]
    for place, path in enumerate(paths):
        rows = [
            dataclasses.replace(row, cpu_model=NASTY, reason=NASTY if row.effect is None else None)
            for row in machine(place, tips=tips)
        ]
        write_effects(path, rows)
    console = Console(file=io.StringIO())
    compare_runs(paths, out=folder / "out", slower="5%", console=console)
    return folder / "out" / "compare.html"


@pytest.fixture(scope="module")
def asked() -> list[str]:
    """What the page asked of others, complained of or opened."""
    return []


@pytest.fixture(scope="module")
def page(browser: Browser, report: Path, asked: list[str]) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    asked.clear()

    def note(request: Request) -> None:
        if request.url != report.as_uri() and not request.url.startswith("data:"):
            asked.append(request.url)

    def close(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    context.on("request", note)
    page.on("console", lambda message: asked.append(message.text))
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.on("dialog", close)
    page.goto(report.as_uri())
    yield page
    context.close()


def run(page: Page, script: str) -> Any:
    return page.evaluate(f"() => {{ {script} }}")


def test_the_keyboard_skips_to_the_results(page: Page) -> None:
    page.keyboard.press("Tab")
    assert run(page, "return document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["y"] >= 0  # type: ignore[index]
    page.keyboard.press("Enter")
    assert run(page, "return document.activeElement.id") == "main"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_text_is_whole_apart_and_readable(
    page: Page, width: int, scheme: Literal["light", "dark"]
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    run(page, "document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert run(page, "return document.documentElement.scrollWidth") <= width
    assert run(page, CUT) == []
    assert run(page, OVERLAPS) == []
    assert run(page, FAINT) == {}
    assert page.locator(".picture").first.is_visible() == (width >= 700)


def test_nothing_is_asked_of_anyone_and_no_script_is_there(page: Page, asked: list[str]) -> None:
    page.wait_for_load_state("networkidle")
    assert asked == []
    assert run(page, "return document.scripts.length") == 0
    broken = "return [...document.images].filter((each) => !each.complete || !each.naturalWidth)"
    assert run(page, f"{broken}.length") == 0


def test_structure_is_told_to_those_who_do_not_see_it(page: Page) -> None:
    levels = run(
        page,
        "return [...document.querySelectorAll('main h1, main h2, main h3, header h1')]"
        ".map((each) => Number(each.tagName[1]))",
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    for landmark in ("header", "nav[aria-label]", "main"):
        assert page.locator(f"body > {landmark}, body > .layout > {landmark}").count() == 1
    assert page.locator("img:not([alt]), img[alt='']").count() == 0
    assert page.locator("svg.strip:not([role=img][aria-label])").count() == 0
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0


def test_links_of_the_page_find_their_targets(page: Page) -> None:
    ids = run(page, "return [...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))
    targets = run(
        page, "return [...document.querySelectorAll('a')].map((each) => each.getAttribute('href'))"
    )
    assert {target[1:] for target in targets if target.startswith("#")} <= set(ids)
    link = page.locator("nav a").last
    link.click()
    target = link.get_attribute("href")
    assert page.locator(f"[id='{(target or '#')[1:]}']").is_visible()
    assert run(page, "return location.hash") == target


def test_on_paper_everything_is_open_and_nothing_leads_elsewhere(page: Page) -> None:
    page.set_viewport_size({"width": 720, "height": 1000})
    page.emulate_media(media="print")
    run(page, "document.querySelectorAll('details').forEach((each) => { each.open = false; })")
    assert not page.locator("nav").is_visible()
    heights = run(
        page,
        "return [...document.querySelectorAll('details > :not(summary)')]"
        ".map((each) => each.getBoundingClientRect().height)",
    )
    assert heights
    assert min(heights) > 0
    assert run(page, CUT) == []
    page.emulate_media(media="screen")


def test_nasty_texts_are_shown_as_they_are(page: Page, report: Path) -> None:
    if "nasty" not in report.parent.name:
        pytest.skip("the other pages have none, or few")
    shown = re.sub(r"\s+", " ", page.locator("body").inner_text())
    assert " ".join(NASTY.split()) in shown
    assert "解码器" * 20 in shown
    assert make_environment()["machine_name"] in page.title()
