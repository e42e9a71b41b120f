"""The timeline in a real browser: what it shows is what Python computed, what one does to it works, nothing leaves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import overlapscope as osc
from browser.chrome import browser, missing
from made import made
from overlapscope.report.colours import COLOURS
from test_timeline import DATA, HOSTILE, hostile, laid_out, worked_example

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no browser: {missing()}")

SETTLED = """async () => {
  const t = await timeline;
  do await new Promise((done) => requestAnimationFrame(() => setTimeout(done))); while (t.axis.busy || t.due);
}"""


POINT = """(() => {
  const [time, label, rank] = a, box = t.canvas.getBoundingClientRect();
  const row = t.painter.rows.find((r) => r.rank === rank && r.label === label);
  return [box.left + t.painter.x(time), box.top + t.view.top + row.top - t.view.scroll + row.height / 2];
})()"""
HEAD = """(() => {
  const box = t.canvas.getBoundingClientRect();
  return [box.left + 30, box.top + t.view.top + 10];
})()"""

# How many pixels of a part of the canvas have each colour: x, y, width, height in device pixels.
COLOURED = """(() => {
  const { data } = t.painter.context.getImageData(...a), found = {};
  for (let i = 0; i < data.length; i += 4) {
    const key = "#" + [...data.slice(i, i + 3)].map((v) => v.toString(16).padStart(2, "0")).join("");
    found[key] = (found[key] || 0) + 1;
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


@dataclass
class Tab:
    """A page, and what must not happen in it."""

    page: Page
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def settle(self) -> None:
        self.page.evaluate(SETTLED)

    def of(self, expression: str, argument: object = None) -> Any:
        """A value of the timeline, which is `t`."""
        return self.page.evaluate(
            f"async (a) => {{ const t = await timeline; return {expression}; }}", argument
        )

    def until(self, expression: str) -> None:
        """Wait until it is true; the page's policy keeps Playwright from waiting inside it."""
        for _ in range(200):
            if self.of(expression):
                return self.settle()
            self.page.wait_for_timeout(25)
        raise AssertionError(f"never true: {expression}")

    def view(self) -> tuple[float, float]:
        t0, t1 = self.of("[t.view.t0, t.view.t1]")
        return t0, t1

    def point(self, t: float, label: str, rank: int = 0) -> tuple[float, float]:
        """Where on the screen a time lies on the first lane of this label."""
        x, y = self.of(POINT, [t, label, rank])
        return x, y

    def row(self, label: str) -> tuple[float, float]:
        """Top and height of a row on the canvas, in device pixels."""
        row = "t.painter.rows.find((r) => r.label === a)"
        top, height = self.of(
            f"[t.view.top + {row}.top, {row}.height].map((v) => v * t.painter.ratio)", label
        )
        return top, height

    def coloured(self, x: float, y: float, width: float, height: float) -> dict[str, int]:
        """How many pixels of a part of the canvas have each colour."""
        found: dict[str, int] = self.of(COLOURED, [round(v) for v in (x, y, width, height)])
        return found

    def pixels(self, colour: str) -> int:
        """How many pixels of the canvas have exactly this colour."""
        width, height = self.of("[t.canvas.width, t.canvas.height]")
        return self.coloured(0, 0, width, height).get(colour, 0)


@pytest.fixture
def open_tab(chrome: Browser, tmp_path: Path) -> Iterator[Any]:
    tabs: list[Tab] = []

    def opened(trace: osc.Trace, window: str | None = None, link: str = "", **context: Any) -> Tab:
        place = tmp_path / f"page{len(tabs)}.html"
        osc.timeline(trace, window).save(place)
        page = chrome.new_context(**{"viewport": {"width": 1280, "height": 800}, **context}).new_page()
        tab = Tab(page)

        def route(way: Any) -> None:
            if way.request.url.startswith((place.as_uri(), "data:", "blob:")):
                way.continue_()
            else:
                tab.left.append(way.request.url)
                way.abort()

        page.context.route("**/*", route)
        page.on("console", lambda m: tab.wrong.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: tab.wrong.append(str(e)))
        page.on("dialog", lambda d: (tab.wrong.append(d.message), d.dismiss()))
        page.goto(place.as_uri() + link)
        tab.settle()
        tabs.append(tab)
        return tab

    yield opened
    for tab in tabs:
        tab.settle()
        assert tab.wrong == []
        assert tab.left == []
        tab.page.context.close()


@pytest.fixture
def worked(open_tab: Any, tmp_path: Path) -> Tab:
    tab: Tab = open_tab(osc.load(worked_example(tmp_path)), "0:100")
    return tab


def figures(tab: Tab, where: str) -> list[dict[str, int]]:
    """A table of figures in the page."""
    rows = tab.page.locator(f"{where} tbody tr")
    return [
        {
            "rank": int(row.get_attribute("data-rank") or ""),
            **{
                str(cell.get_attribute("data-figure")): int(cell.get_attribute("data-ns") or "")
                for cell in row.locator("td").all()
            },
        }
        for row in rows.all()
    ]


# -- what it shows -------------------------------------------------------------------------------------------


def test_figures_in_the_page_are_the_json_reports(open_tab: Any) -> None:
    tab = open_tab(osc.load(DATA))
    command = [sys.executable, "-m", "overlapscope", "report", str(DATA), "--format", "json"]
    report = json.loads(
        subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    )
    shown = figures(tab, ".figures")
    assert len(shown) == 2
    assert shown == [{key: row[key] for key in shown[0]} for row in report["ranks"]]
    assert {
        "window_ns",
        "compute_ns",
        "exposed_comm_ns",
        "exposed_memory_ns",
        "idle_ns",
        "overlap_ns",
    } <= set(shown[0])
    for warning in report["warnings"]:
        assert tab.page.get_by_text(warning, exact=True).count() == 1


def check_totals(tab: Tab, trace: osc.Trace, window: str | None = None) -> None:
    """Lanes, states and exposed pieces in the page are Python's, to the nanosecond."""
    result, drawn = osc.overlap(trace, window), laid_out(trace, window)
    sums = "((l) => l.end.reduce((s, e, i) => s + e - l.start[i], 0))"
    assert tab.of(f"t.model.lanes.map((l) => [l.n, {sums}(l), {sums}(l.exposed)])") == [
        [
            len(lane.start),
            int((lane.end - lane.start).sum()),
            int((lane.exposed.end - lane.exposed.start).sum()),
        ]
        for lane in drawn.lanes
    ]
    assert tab.of("t.model.strips.map((s) => [s.n, [...s.start], [...s.state]])") == [
        [len(strip.start), strip.start.tolist(), strip.state.tolist()] for strip in drawn.strips
    ]
    told = tab.of("t.finder.span(t.model.start, t.model.end)")
    for row, mine in zip(result.ranks.to_dict("records"), told, strict=True):
        assert {key: row[key] for key in mine} == mine
    exposed = tab.of(
        "t.model.lanes.filter((l) => !l.ranges)"
        ".flatMap((l) => [...l.start].map((s, i) => [l.rank, s, l.end[i], t.finder.exposed(l, i)]))"
    )
    of_op = {(rank, a, b): ns for rank, a, b, ns in exposed if ns}
    known = result.instances[result.instances["exposed_ns"] > 0]
    ahead = result.matching.clocks.ahead(result.windows.of_rank)  # the page is on one clock
    assert of_op == {
        (r, a - ahead[r], b - ahead[r]): ns
        for r, a, b, ns in known[["rank", "start", "end", "exposed_ns"]].itertuples(index=False)
    }


def test_totals_of_the_worked_example(worked: Tab, tmp_path: Path) -> None:
    assert worked.of("t.finder.span(0, 100)[0]") == {
        "rank": 0, "window_ns": 100, "compute_ns": 65, "comm_ns": 40, "overlap_ns": 20, "exposed_comm_ns": 20,
        "exposed_memory_ns": 5, "idle_ns": 10,
    }  # fmt: skip
    assert worked.of("t.model.strips[0].n") == 11
    check_totals(worked, osc.load(tmp_path / "worked.sqlite"), "0:100")


def test_totals_of_a_real_run(open_tab: Any) -> None:
    trace = osc.load(DATA)
    check_totals(open_tab(trace), trace)


@pytest.mark.parametrize("name", ["kineto/megatron-tp8-a100", "nsys/ddp-2rank-rtx3090-schema3.27.sqlite"])
def test_totals_of_real_traces(open_tab: Any, shared_traces: Path, name: str) -> None:
    trace = osc.load(shared_traces / name)
    check_totals(open_tab(trace), trace)


def test_times_beyond_32_bits_are_exact(open_tab: Any) -> None:
    long = 3 * 2**40 + 1
    ops = [
        {"rank": 0, "start": a, "end": b, "kind": k}
        for a, b, k in ((7, long, "gemm"), (long + 2, 2 * long, "comm"))
    ]
    trace = made(ops, ranks=1)
    tab = open_tab(trace)
    check_totals(tab, trace)
    assert tab.of("t.finder.span(0, 2 * a)[0].exposed_comm_ns", long) == long - 2


def test_exposed_communication_has_a_shade_of_its_own(worked: Tab) -> None:
    """20 of the 40 ns on stream 20 are exposed: as wide as the hidden ones."""
    wide = worked.of("t.view.width * t.painter.ratio")
    top, _ = worked.row("stream 20")
    found = worked.coloured(0, top + 2, worked.of("t.canvas.width"), 1)
    for key in ("exposed", "comm"):
        assert found[COLOURS[key].light] == pytest.approx(0.20 * wide, abs=6)


def test_colours_follow_the_page(open_tab: Any) -> None:
    tab = open_tab(osc.load(DATA), color_scheme="dark")
    assert tab.pixels(COLOURS["exposed"].dark) > 500
    assert tab.pixels(COLOURS["exposed"].light) == 0
    tab.page.emulate_media(color_scheme="light")
    tab.until("t.colours.page === '#ffffff'")
    assert tab.pixels(COLOURS["exposed"].light) > 500
    assert tab.pixels(COLOURS["exposed"].dark) == 0


# -- what one does to it -------------------------------------------------------------------------------------


def test_keys_zoom_pan_and_reset(worked: Tab) -> None:
    page = worked.page
    whole = worked.view()
    assert whole == (0, 100)
    page.keyboard.press("w")
    worked.settle()
    near = worked.view()
    assert near[1] - near[0] == pytest.approx(100 / 1.4)
    page.keyboard.press("d")
    worked.settle()
    assert worked.view()[0] - near[0] == pytest.approx((near[1] - near[0]) * 0.2, abs=3)
    page.keyboard.press("a")
    page.keyboard.press("s")
    worked.settle()
    assert worked.view()[1] - worked.view()[0] == pytest.approx(100)
    page.keyboard.press("w")
    page.keyboard.press("0")
    worked.settle()
    assert worked.view() == whole
    # Plotly's axis shows what the canvas shows.
    assert worked.of("t.plot.layout.xaxis.range.map((ms) => ms * 1e6)") == [0, 100]
    page.get_by_role("button", name="Zoom in (w)").click()
    worked.settle()
    assert worked.view()[1] - worked.view()[0] == pytest.approx(100 / 1.6)
    page.keyboard.press("Home")
    for _ in range(40):
        page.keyboard.press("w")
    worked.settle()
    assert worked.view()[1] - worked.view()[0] == pytest.approx(20)  # the closest


def test_dragging_zooms_to_what_is_marked_and_pans(worked: Tab) -> None:
    mouse = worked.page.mouse
    (x0, y), (x1, _) = worked.point(20, "stream 9"), worked.point(60, "stream 9")
    mouse.move(x0, y)
    mouse.down()
    mouse.move(x1, y + 5, steps=5)
    mouse.up()
    worked.settle()
    assert worked.view() == pytest.approx((20, 60), abs=0.5)
    worked.page.get_by_role("button", name="Whether dragging zooms or moves").click()
    worked.settle()
    (x0, y), (x1, _) = worked.point(30, "stream 9"), worked.point(40, "stream 9")
    mouse.move(x1, y)
    mouse.down()
    mouse.move(x0, y, steps=5)
    mouse.up()
    worked.settle()
    assert worked.view() == pytest.approx((30, 70), abs=0.5)


def test_the_wheel_zooms_around_the_pointer(worked: Tab) -> None:
    x, y = worked.point(70, "stream 7")
    worked.page.mouse.move(x, y)
    worked.page.keyboard.down("Control")
    worked.page.mouse.wheel(0, -50)
    worked.page.keyboard.up("Control")
    worked.settle()
    t0, t1 = worked.view()
    assert t1 - t0 < 99
    assert worked.point(70, "stream 7")[0] == pytest.approx(x, abs=1)


def test_hover_tells_all_of_an_op(open_tab: Any) -> None:
    trace = osc.load(DATA)
    tab = open_tab(trace)
    comm = osc.overlap(trace).instances
    one = comm[comm["rank"] == 0].sort_values("duration_ns").iloc[-1]
    tab.page.mouse.move(*tab.point((one["start"] + one["end"]) / 2, one["lane"]))
    tab.settle()
    tip = tab.page.locator(".tip")
    told = tip.inner_text()
    assert one["name"] in told
    labels, words = (tip.locator(tag).all_inner_texts() for tag in ("dt", "dd"))
    said = dict(zip(labels, words, strict=True))
    assert said["where"] == f"rank 0 · {one['lane']}"
    assert said["kind"] == "comm, all_reduce"
    assert said["duration"] == f"{one['duration_ns'] / 1e6:.3f} ms"
    assert said["exposed"].startswith(f"{one['exposed_ns'] / 1e6:.3f} ms")
    assert said["bytes"].endswith(f"({one['bytes']:,})")
    assert said["in"].split(" › ")[-1].endswith("all_reduce")
    assert "waiting for a late rank" in said["of that"]
    same = comm[comm["match"] == one["match"]]
    last = same.loc[same["wait_ns"] == 0, "rank"].iloc[0]
    assert said["last to begin"] == f"rank {last}, {same['wait_ns'].max() / 1e3:,.3f} µs after the first"
    tab.page.mouse.move(5, 5)
    tab.settle()
    assert tip.is_hidden()


def test_a_click_pins_and_escape_lets_go(worked: Tab) -> None:
    worked.page.mouse.click(*worked.point(20, "stream 7"))
    worked.page.mouse.move(3, 3)
    worked.settle()
    tip = worked.page.locator(".tip")
    assert "gemm" in tip.inner_text()
    worked.page.keyboard.press("f")
    worked.settle()
    assert worked.view() == pytest.approx(
        (-2, 46)
    )  # the 40 ns and a tenth on either side, kept inside the timeline's edge of 2 ns
    worked.page.keyboard.press("Escape")
    worked.settle()
    assert tip.is_hidden()


def test_hover_where_many_share_a_pixel(open_tab: Any) -> None:
    ops = [
        {"rank": 0, "start": 10 * i, "end": 10 * i + (9 if i % 2 else 3), "kind": ("comm", "gemm")[i % 2]}
        for i in range(50_000)
    ]
    tab = open_tab(made(ops, ranks=1))
    tab.page.mouse.move(*tab.point(250_000, "stream 7"))
    tab.settle()
    told = tab.page.locator(".tip").inner_text()
    assert "ops in this pixel" in told
    shares = re.search(r"([\d.]+) % gemm, ([\d.]+) % comm", told)  # 9 ns to 3 ns, give or take an op
    assert shares is not None
    assert float(shares[1]) == pytest.approx(75, abs=2)
    # A pixel's column shows shares: 0.45 gemm, 0.15 comm, exposed, of its time, the rest of the page.
    top, height = tab.row("stream 7")
    x = tab.of("t.painter.x(250000) * t.painter.ratio")
    column = tab.coloured(x, top, 1, height - 2)
    assert column[COLOURS["gemm"].light] / (height - 2) == pytest.approx(0.45, abs=0.06)
    assert column[COLOURS["exposed"].light] / (height - 2) == pytest.approx(0.15, abs=0.06)


def test_search_finds_and_goes_round(worked: Tab) -> None:
    page = worked.page
    page.keyboard.press("/")
    page.keyboard.type("allREDUCE")
    hits = page.locator(".hits")
    assert hits.inner_text() == "3 found"
    page.keyboard.press("Enter")
    starts = [worked.of("t.marks.found.row.lane.start[t.marks.found.i]")]
    assert hits.inner_text() == "1 of 3"
    page.keyboard.press("Escape")
    for key in "nnnN":
        page.keyboard.press(key)
        starts.append(worked.of("t.marks.found.row.lane.start[t.marks.found.i]"))
    assert starts == [30, 85, 88, 30, 88]
    assert hits.inner_text() == "3 of 3"
    worked.settle()
    t0, t1 = worked.view()
    assert t0 <= 88
    assert t1 >= 92
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.type("no such name")
    assert hits.inner_text() == "none"


def test_legend_hides_and_shows(worked: Tab) -> None:
    for key in ("exposed", "comm", "gemm", "memory", "busy", "idle"):
        item = worked.page.locator(f'.legend [data-class="{key}"]')
        before = worked.pixels(COLOURS[key].light)
        assert before > 100
        item.click()
        worked.settle()
        assert worked.pixels(COLOURS[key].light) == 0
        assert item.get_attribute("aria-pressed") == "false"
        item.press("Enter")
        worked.settle()
        assert worked.pixels(COLOURS[key].light) == before


def test_a_measured_span_is_a_report_of_that_window(open_tab: Any) -> None:
    trace = osc.load(DATA)
    tab = open_tab(trace, "whole")
    t0, t1 = tab.view()
    (x0, y), (x1, _) = (tab.point(t0 + (t1 - t0) * share, "state") for share in (0.3, 0.7))
    tab.page.keyboard.down("Shift")
    tab.page.mouse.move(x1, y)
    tab.page.mouse.down()
    tab.page.mouse.move(x0, y + 40, steps=4)
    tab.page.mouse.up()
    tab.page.keyboard.up("Shift")
    tab.settle()
    assert tab.view() == (t0, t1)  # Plotly did not zoom
    a, b = tab.of("t.marks.span")
    assert (a, b) == pytest.approx((t0 + (t1 - t0) * 0.3, t0 + (t1 - t0) * 0.7), rel=0.01)
    assert int(tab.page.locator(".measured strong").get_attribute("data-ns") or "") == b - a
    expected = osc.overlap(trace, f"{a}ns:{b}ns").ranks.to_dict("records")
    shown = figures(tab, ".measured")
    assert shown == [{key: row[key] for key in shown[0]} for row in expected]
    tab.page.keyboard.press("Escape")
    assert tab.page.locator(".measured").is_hidden()
    tab.page.keyboard.press("m")
    assert int(tab.page.locator(".measured strong").get_attribute("data-ns") or "") == t1 - t0


def test_the_address_is_a_link_to_the_view(open_tab: Any) -> None:
    trace = osc.load(DATA)
    tab = open_tab(trace, link="#30.000001-31.5")
    assert tab.view() == (30_000_001, 31_500_000)
    tab.page.evaluate("location.hash = '#32-33'")
    tab.until("t.view.t0 === 32e6")
    tab.page.keyboard.press("w")
    tab.until("location.hash !== '#32-33'")
    again = open_tab(trace, link=tab.page.evaluate("location.hash"))
    assert again.view() == pytest.approx(tab.view(), abs=1)
    tab.page.keyboard.press("0")
    tab.until("location.hash === ''")


def test_ranks_fold_to_their_states(open_tab: Any) -> None:
    ops = [
        {"rank": r, "start": 5 * r, "end": 100, "kind": k}
        for r in range(8)
        for k in ("gemm", "comm", "memory", "attention")
    ]
    ranges = [{"rank": r, "thread": 1, "start": 0, "end": 90, "name": f"in {r}"} for r in range(8)]
    tab = open_tab(made(ops, ranges, ranks=8))
    assert tab.of("[...t.painter.folded]") == list(range(1, 8))
    tab.page.locator("input[type=search]").fill("in 5")
    tab.page.keyboard.press("Enter")
    assert tab.of("[...t.painter.folded]") == [1, 2, 3, 4, 6, 7]  # what is found is shown
    tab.page.get_by_role("button", name="Fold all ranks").click()
    assert tab.of("t.painter.folded.size") == 0
    tab.page.mouse.click(*tab.of(HEAD))
    assert tab.of("[...t.painter.folded]") == [0]


def test_a_picture_holds_canvas_and_axis(worked: Tab, tmp_path: Path) -> None:
    with worked.page.expect_download() as download:
        worked.page.get_by_role("button", name="Save a picture").click()
    saved = tmp_path / "picture.png"
    download.value.save_as(saved)
    data = saved.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert [int.from_bytes(data[i : i + 4], "big") for i in (16, 20)] == worked.of(
        "[t.canvas.width, t.canvas.height]"
    )


# -- for everyone --------------------------------------------------------------------------------------------


def test_a_phone_shows_it_without_sideways_scrolling(open_tab: Any) -> None:
    tab = open_tab(osc.load(DATA), viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 390
    x, y = tab.point(tab.of("t.model.lanes.find((l) => !l.ranges).start[0]"), "thread 14773")
    tab.page.touchscreen.tap(x, y)
    tab.settle()
    assert tab.page.locator(".tip").is_visible()


def test_every_control_has_a_name_and_keys_are_told(worked: Tab) -> None:
    for control in worked.page.locator("button, input").all():
        name = control.get_attribute("aria-label") or control.inner_text()
        assert len(name) > 1
    worked.page.keyboard.press("?")
    dialog = worked.page.get_by_role("dialog")
    assert "Shift + drag" in dialog.inner_text()
    worked.page.keyboard.press("Escape")
    assert dialog.count() == 0


def test_names_do_nothing(open_tab: Any, tmp_path: Path) -> None:
    tab = open_tab(osc.load(hostile(tmp_path)))
    page = tab.page
    for i in range(len(HOSTILE)):
        for label in ("stream 7", "stream 20", "ranges"):
            page.mouse.move(*tab.point(100 * i + 20 + 45 * (label == "stream 20"), label))
            tab.settle()
            assert page.locator(".tip").is_visible()
    page.mouse.click(*tab.point(20, "stream 7"))
    tab.settle()
    assert HOSTILE[0] in page.locator(".tip p").inner_text()
    page.locator("input[type=search]").fill("<img")
    assert page.locator(".hits").inner_text() == "3 found"
    assert page.locator("img, iframe, object, embed").count() == 0
    assert page.evaluate("[...document.querySelectorAll('[onerror], [onload], [onclick]')].length") == 0


def test_the_policy_refuses_the_network_and_foreign_scripts(worked: Tab) -> None:
    refused = worked.page.evaluate(
        """async () => {
          const seen = [];
          document.addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.head.append(script);
          await fetch("https://example.invalid/").catch(() => null);
          await new Promise((done) => setTimeout(done, 50));
          return [seen.sort(), window.ran === undefined];
        }"""
    )
    assert refused == [["connect-src", "script-src-elem"], True]
    worked.wrong.clear()  # the browser says in the console that it refused them
