"""The report's page in a real browser: figures equal the JSON report, tables and tree work, names do nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import compared
import overlapscope as osc
from browser.chrome import browser, missing
from overlapscope.cli import main
from overlapscope.report import document, export
from overlapscope.report import html as pages
from overlapscope.report.colours import COLOURS
from test_html import contrast, scale_page
from test_report import two_ranks
from test_timeline import DATA, HOSTILE, hostile

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no browser: {missing()}")


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


@contextmanager
def opened(chrome: Browser, place: Path, *, complaints: int = 0, **context: Any) -> Iterator[Page]:
    """A page; no error in its console but as many as are provoked, no request that leaves, no dialog."""
    wrong: list[str] = []
    window = chrome.new_context(**{"viewport": {"width": 1280, "height": 800}, **context})
    page = window.new_page()

    def route(way: Any) -> None:
        if way.request.url.startswith((place.as_uri(), "data:", "blob:")):
            way.continue_()
        else:
            wrong.append(way.request.url)
            way.abort()

    window.route("**/*", route)
    page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("dialog", lambda d: (wrong.append(d.message), d.dismiss()))
    page.goto(place.as_uri())
    try:
        yield page
        page.wait_for_timeout(50)
        assert len(wrong) == complaints, wrong
    finally:
        window.close()


def laid(trace: osc.Trace, place: Path, *, timeline: bool = True) -> Path:
    place.write_text(pages.html(pages.of_report(document.build(trace), timeline=timeline)))
    return place


def report_of(trace: osc.Trace, by: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(export.json_text(document.build(trace, by=by)))
    return found


def values(page: Page, section: str, *, hidden: bool = True) -> list[list[float | str]]:
    """Rows of a section's first table: exact numbers, else words."""
    found: list[list[float | str]] = page.evaluate(
        """([id, hidden]) => [...document.querySelector(`#${id} table`).tBodies[0].rows]
          .filter((row) => hidden || !row.hidden)
          .map((row) => [...row.cells].map((c) => "value" in c.dataset ? Number(c.dataset.value) : c.textContent))""",
        [section, hidden],
    )
    return found


def check_figures(page: Page, trace: osc.Trace) -> None:
    """Every figure of the ranks, collectives, stragglers and ranges is that of the JSON report."""
    report = report_of(trace, "range")
    keys = [
        "rank",
        *(f"{c}_ns" for c in ("window", "compute", "exposed_comm", "exposed_memory", "idle", "comm")),
    ]
    assert [row[:7] for row in values(page, "ranks")] == [[r[k] for k in keys] for r in report["ranks"]]
    n = len(report["ranks"])
    exposed = {
        name: sum(c["exposed_ns"] for c in report["collectives"] if c["collective"] == name) / n
        for name in {c["collective"] for c in report["collectives"]}
    }
    assert {row[0]: row[4] for row in values(page, "communication")} == pytest.approx(exposed)
    late = {s["rank"]: s["cost_ns"] for s in report["stragglers"] if s["cost_ns"]}
    shown = values(page, "stragglers") if page.locator("#stragglers").count() else []
    assert {row[0]: row[3] for row in shown} == late
    if page.locator("#program").count():
        sums: dict[tuple[str, ...], float] = {}
        for row in report["by_range"]:
            path = (row["place"], *row["path"])
            sums[path] = sums.get(path, 0) + row["exposed_comm_ns"] / n
        assert sorted(float(row[5]) for row in values(page, "program")) == pytest.approx(
            sorted(sums.values())
        )
    tile = page.locator(".tiles b").first.get_attribute("data-value")
    total = sum(r["window_ns"] for r in report["ranks"])
    assert float(tile or "") == pytest.approx(
        100 * sum(r["exposed_comm_ns"] for r in report["ranks"]) / total
    )


def test_figures_of_a_handmade_trace(chrome: Browser, tmp_path: Path) -> None:
    trace = two_ranks(tmp_path)
    with opened(chrome, laid(trace, tmp_path / "page.html", timeline=False)) as page:
        check_figures(page, trace)


@pytest.mark.parametrize("name", ["kineto/megatron-tp8-a100", "nsys/pp-2rank-h100-schema3.25.sqlite"])
def test_figures_of_real_traces(chrome: Browser, tmp_path: Path, shared_traces: Path, name: str) -> None:
    trace = osc.load(shared_traces / name)
    with opened(chrome, laid(trace, tmp_path / "page.html")) as page:
        check_figures(page, trace)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid(osc.load(DATA), tmp_path_factory.mktemp("real") / "page.html")


def test_a_page_of_a_real_run(chrome: Browser, real: Path) -> None:
    """One page, used as a reader would: figures, sorting, the tree, a finding's link, the timeline."""
    with opened(chrome, real) as page:
        assert page.evaluate("!(window.timeline instanceof Promise) && window.Plotly === undefined")
        check_figures(page, osc.load(DATA))
        sort_by_keyboard(page)
        the_tree_folds_sorts_and_filters(page)
        names_are_filtered(page)
        a_link_unfolds_what_it_leads_to(page)
        the_timeline_is_drawn_when_it_comes_into_view(page)


def sort_by_keyboard(page: Page) -> None:
    before = values(page, "ranks")
    head = page.locator("#ranks table thead th").nth(3)  # exposed comm
    head.get_by_role("button").focus()
    for order, key in (("descending", -1), ("ascending", 1)):
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == order
        assert values(page, "ranks") == sorted(before, key=lambda row: key * float(row[3]))
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") is None
    assert values(page, "ranks") == before


def the_tree_folds_sorts_and_filters(page: Page) -> None:
    shown, every = values(page, "program", hidden=False), values(page, "program")
    assert len(shown) == 12  # as in a terminal
    page.get_by_role("button", name=f"Show all {len(every)} ranges").click()
    assert len(values(page, "program", hidden=False)) > 12
    shown = values(page, "program", hidden=False)
    folds = page.locator("#program .fold")
    first = folds.first
    assert first.get_attribute("aria-expanded") == "true"
    first.focus()
    page.keyboard.press("Enter")
    assert first.get_attribute("aria-expanded") == "false"
    assert len(values(page, "program", hidden=False)) < len(shown)
    page.keyboard.press("Enter")
    assert values(page, "program", hidden=False) == shown
    # Siblings change places inside what holds them: depths still make a tree, and sums of children stay below.
    page.locator("#program thead button").nth(2).click()  # compute
    rows = page.evaluate(
        """[...document.querySelector("#program table").tBodies[0].rows]
          .map((row) => [Number(row.dataset.depth), Number(row.cells[2].dataset.value)])"""
    )
    last: dict[int, float] = {}
    for depth, compute in rows:
        assert compute <= last.get(depth, float("inf"))
        last = {d: v for d, v in last.items() if d < depth} | {depth: compute}
        assert depth == 0 or depth - 1 in last
    for _ in range(2):
        page.locator("#program thead button").nth(2).click()
    assert values(page, "program") == every
    page.locator("#program input").fill("mlp.down.all_reduce")
    found = [str(row[0]) for row in values(page, "program", hidden=False)]
    assert found == ["forward", "layer 0", "mlp.down", "mlp.down.all_reduce"]
    assert page.locator("#program output").inner_text() == f"1 of {len(every)}"
    page.locator("#program input").fill("")
    assert values(page, "program", hidden=False) == shown


def names_are_filtered(page: Page) -> None:
    page.locator("#names summary").click()
    page.locator("#names input").fill("ALL_reduce")
    rows = values(page, "names", hidden=False)
    assert [row[1] for row in rows] == ["comm"] * len(rows)
    assert rows


def a_link_unfolds_what_it_leads_to(page: Page) -> None:
    for fold in page.locator("#program .fold[aria-expanded=true]").all()[::-1]:
        fold.click()
    link = page.get_by_role("link", name="Show it in the program").first
    target = (link.get_attribute("href") or "")[1:]
    assert page.locator(f"[id='{target}']").is_hidden()
    link.click()
    page.wait_for_timeout(100)
    assert page.locator(f"[id='{target}']").is_visible()
    assert page.evaluate("document.activeElement.id") == target


def the_timeline_is_drawn_when_it_comes_into_view(page: Page) -> None:
    page.locator("#timeline-of-ranks-title").scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    drawn = page.evaluate(
        "timeline.then((t) => [t.canvas.width > 500, t.model.ranks.map((one) => one.window_ns)])"
    )
    assert drawn == [True, [r["window_ns"] for r in report_of(osc.load(DATA))["ranks"]]]
    assert page.locator("h1").count() == 2  # the timeline's own is not shown
    assert page.get_by_role("heading", level=1).count() == 1


# -- for everyone --------------------------------------------------------------------------------------------

READ = """() => {
  const hex = (c) => "#" + c.match(/\\d+/g).slice(0, 3).map((v) => Number(v).toString(16).padStart(2, "0")).join("");
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (!c.endsWith(", 0)")) return hex(c);
    }
  };
  const wanted = ["h1", ".lead", ".of", ".tiles b", ".tiles span", "nav a", "h2 small", ".cost", ".try", "p a",
    ".legend li", ".figure", ".figure.exposed", "thead button",
    "tbody th", "td", "td.exposed", "tfoot td", "summary", "dt", "dd", "footer p"];
  return wanted.map((s) => [s, document.querySelector(s)]).filter(([, e]) => e)
    .map(([s, e]) => [s, hex(getComputedStyle(e).color), behind(e)]);
}"""


def test_words_sort_by_the_numbers_in_them_and_are_found_in_any_column(
    chrome: Browser, tmp_path: Path
) -> None:
    """Twelve steps of two ranks; a link to a row that a filter hides; an address that names nothing."""
    place = tmp_path / "run"
    compared.run(place, [(600 + i, 300, 800) for i in range(12)], ranks=2)
    page_of = document.build(osc.load(place), by="step")
    (tmp_path / "page.html").write_text(pages.html(pages.of_report(page_of, timeline=False)))
    with opened(chrome, tmp_path / "page.html") as page:
        table = page.locator("#steps table")
        table.get_by_role("button", name="step", exact=True).click()
        order = [str(row[1]) for row in values(page, "steps")]
        assert order == [f"step {i}" for i in range(12) for _ in range(2)]
        page.locator("#steps input").fill("step 11")
        assert [row[:2] for row in values(page, "steps", hidden=False)] == [[0, "step 11"], [1, "step 11"]]
        page.goto(f"{page.url}#%")
        page.reload()
        assert page.locator("#steps input").input_value() == ""  # the script came to its end


def test_text_is_readable_in_both_themes_and_colours_follow(chrome: Browser, real: Path) -> None:
    with opened(chrome, real) as page:
        for theme in ("dark", "light"):
            page.emulate_media(color_scheme=theme)
            read = page.evaluate(READ)
            assert len(read) >= 20
            for selector, colour, behind in read:
                assert contrast(colour, behind) >= 4.5, (theme, selector, colour, behind)
            exposed = page.evaluate("getComputedStyle(document.querySelector('.bar i.wire')).backgroundColor")
            wanted = getattr(COLOURS["exposed"], theme)
            assert exposed == f"rgb({', '.join(str(int(wanted[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_all_is_reached_by_keyboard_and_has_a_name(chrome: Browser, real: Path) -> None:
    with opened(chrome, real) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.locator(".skip").bounding_box()["x"] >= 0  # type: ignore[index]
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        for control in page.locator("main button, main input").all():
            assert len(control.get_attribute("aria-label") or control.text_content() or "") > 1
        page.locator("#ranks thead button").first.focus()
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"


def test_it_prints_in_light_without_controls(chrome: Browser, real: Path) -> None:
    with opened(chrome, real, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        for gone in ("nav", ".filter", "#timeline", ".fold"):
            assert page.locator(gone).first.is_hidden()
        assert page.locator(".on-paper").is_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
        page.set_viewport_size({"width": 690, "height": 1000})  # A4 without its margins
        assert page.evaluate("document.documentElement.scrollWidth") == 690


def test_a_phone_shows_every_page_without_sideways_scrolling(
    chrome: Browser, real: Path, tmp_path: Path
) -> None:
    a, b = compared.run(tmp_path / "a", compared.SERIAL), compared.run(tmp_path / "b", compared.UNDER)
    with pytest.raises(SystemExit):
        main(
            [
                "compare",
                str(a),
                str(b),
                "--format",
                "json",
                "-o",
                str(tmp_path / "c.json"),
                "--html",
                str(tmp_path / "c.html"),
            ]
        )
    (tmp_path / "s.html").write_text(scale_page(tmp_path)[0])
    for place in (real, tmp_path / "c.html", tmp_path / "s.html"):
        with opened(
            chrome, place, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
        ) as page:
            page.locator("footer").scroll_into_view_if_needed()
            page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_without_scripts_it_is_whole(chrome: Browser, real: Path) -> None:
    with opened(chrome, real, java_script_enabled=False) as page:
        assert (
            page.locator("#program tbody tr").count()
            == page.locator("#program tbody tr:visible").count()
            > 20
        )


def test_charts_are_drawn_in_the_colours_of_the_page(chrome: Browser, tmp_path: Path) -> None:
    text, report = scale_page(tmp_path)
    (tmp_path / "s.html").write_text(text)
    with opened(chrome, tmp_path / "s.html") as page:
        chart = page.locator(".chart")
        chart.locator(".main-svg").first.wait_for()
        drawn = page.evaluate("document.querySelector('.chart').data.map((t) => t.customdata || [])")
        assert drawn[0] == [
            str(size["T_ns"]).removesuffix(".0") if size["T_ns"] % 1 == 0 else "601/2"
            for size in report["sizes"]
        ]
        assert chart.get_attribute("role") == "img"
        assert "efficiency" in (chart.get_attribute("aria-label") or "")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(200)
            line = page.evaluate("document.querySelector('.chart').data[0].line.color")
            assert line == getattr(COLOURS["exposed"], theme)
        page.emulate_media(media="print", color_scheme="dark")
        page.wait_for_timeout(200)
        line, wide = page.evaluate(
            "(({ data, layout }) => [data[0].line.color, layout.width])(document.querySelector('.chart'))"
        )
        assert line == COLOURS["exposed"].light
        assert wide < 690


# -- what a name cannot do -----------------------------------------------------------------------------------


def test_names_do_nothing(chrome: Browser, tmp_path: Path) -> None:
    place = laid(osc.load(hostile(tmp_path)), tmp_path / "page.html")
    with opened(chrome, place) as page:
        page.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)")
        page.locator("#timeline-of-ranks-title").scroll_into_view_if_needed()
        page.wait_for_timeout(300)
        page.evaluate("timeline.then(() => 0)")
        text = page.locator("body").inner_text()
        assert HOSTILE[0] in text
        assert "\\x1b[31mred\\x1b[0m" in text
        assert not re.search("[\x1b\u202e\u200f]|x{3000}", text)
        assert page.locator("img, iframe, object, embed").count() == 0
        assert page.evaluate("[...document.querySelectorAll('[onerror], [onload], [onclick]')].length") == 0
        assert page.evaluate("document.documentElement.scrollWidth") == 1280


def test_the_policy_refuses_the_network_and_foreign_scripts(chrome: Browser, real: Path) -> None:
    with opened(chrome, real, complaints=1) as page:  # the browser says that it refused
        refused = page.evaluate(
            """() => {
              const seen = [];
              document.addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
              const script = document.createElement("script");
              script.textContent = "window.ran = true";
              document.head.append(script);
              return new Promise((done) => setTimeout(() => done([seen, window.ran === undefined]), 50));
            }"""
        )
        assert refused == [["script-src-elem"], True]
