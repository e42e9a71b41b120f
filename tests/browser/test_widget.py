"""The widget's script in a real browser, beside a model such as anywidget gives it: two timelines in one page."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import overlapscope as osc
from browser.chrome import browser, missing
from overlapscope.report.colours import COLOURS
from test_timeline import hostile, worked_example

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no browser: {missing()}")

# What a widget's view meets in a notebook: a module from a blob, a model with events, bytes as a DataView.
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<body data-jp-theme-light="true" style="margin: 8px; width: 1100px"><textarea id="editor"></textarea><script>
class Model {
  constructor(state) { Object.assign(this, { state, heard: new Map(), saved: 0 }); }
  get(key) { return this.state[key]; }
  set(key, value) {
    if (JSON.stringify(value) === JSON.stringify(this.state[key])) return;
    this.state[key] = value;
    for (const one of this.heard.get(`change:${key}`) || []) one();
  }
  on(name, one) { this.heard.set(name, [...(this.heard.get(name) || []), one]); }
  off(name, one) { this.heard.set(name, (this.heard.get(name) || []).filter((other) => other !== one)); }
  save_changes() { this.saved++; }
}
window.inflated = 0;
window.DecompressionStream = class extends DecompressionStream {
  constructor(kind) { super(kind), window.inflated++; }
};
const view = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
async function show({ esm, css, payload, plotly }) {
  const { default: { render } } = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
  document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
  const model = new Model({ payload: view(payload), plotly: view(plotly), shown: null, pinned: null });
  const el = document.body.appendChild(document.createElement("div"));
  (window.shown ||= []).push({ model, el, cleanup: render({ model, el }) });
}
</script>"""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def page(chrome: Browser, tmp_path: Path) -> Iterator[Page]:
    wrong: list[str] = []
    place = tmp_path / "notebook.html"
    place.write_text(PAGE, encoding="utf-8")
    page = chrome.new_context(viewport={"width": 1200, "height": 1500}).new_page()
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("dialog", lambda d: (wrong.append(d.message), d.dismiss()))
    page.on(
        "request",
        lambda r: None if r.url.startswith((place.as_uri(), "data:", "blob:")) else wrong.append(r.url),
    )
    page.goto(place.as_uri())
    yield page
    page.wait_for_timeout(300)
    assert wrong == []
    page.context.close()


def show(page: Page, timeline: osc.Timeline, *, wait: bool = True) -> int:
    """Render a timeline's widget; its number in the page."""
    pytest.importorskip("anywidget", reason="anywidget is not installed (pip install -e '.[notebook]')")
    from overlapscope.report.timeline.widget import TimelineWidget

    state = timeline._widget.get_state()
    coded = {key: base64.b64encode(state[key]).decode() for key in ("payload", "plotly")}
    page.evaluate("show", {"esm": str(TimelineWidget._esm), "css": str(TimelineWidget._css), **coded})
    number: int = page.evaluate("shown.length - 1")
    if wait:
        element(page, number).locator(".plot .xtick").first.wait_for(state="attached")
        page.wait_for_timeout(100)
    return number


def element(page: Page, number: int) -> Locator:
    return page.locator(".ost").nth(number)


def state(page: Page, number: int, key: str) -> Any:
    return page.evaluate("([n, key]) => shown[n].model.get(key)", [number, key])


def until(page: Page, number: int, key: str, value: Any) -> None:
    for _ in range(100):
        if state(page, number, key) == value:
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"{key} is {state(page, number, key)}, never {value}")


def point_at(page: Page, number: int, share: float, words: str) -> tuple[float, float]:
    """Move the pointer down at a share of the plot's width until what is shown has these words."""
    box = element(page, number).locator(".stage").bounding_box()
    assert box is not None
    x = box["x"] + 148 + share * (box["width"] - 148 - 14)
    for y in range(int(box["y"]) + 36, int(box["y"] + box["height"]), 5):
        page.mouse.move(x, y)
        tip = element(page, number).locator(".tip")
        if tip.is_visible() and words in tip.inner_text():
            return x, y
    raise AssertionError(f"nothing here says {words!r}")


def coloured(page: Page, number: int, colour: str) -> bool:
    """Whether a colour is on the canvas."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    found: bool = page.evaluate(
        """([n, ...wanted]) => {
          const canvas = shown[n].el.querySelector("canvas"), { width, height } = canvas;
          const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
          for (let i = 0; i < data.length; i += 4) if (wanted.every((v, k) => data[i + k] === v)) return true;
          return false;
        }""",
        [number, red, green, blue],
    )
    return found


@pytest.fixture
def worked(tmp_path: Path) -> osc.Timeline:
    return osc.timeline(osc.load(worked_example(tmp_path)), "0:100")


def test_two_in_one_page_share_plotly_and_nothing_else(page: Page, worked: osc.Timeline) -> None:
    first, second = show(page, worked), show(page, worked)
    assert page.evaluate("inflated") == 3  # two payloads, and Plotly once
    assert page.evaluate("overlapscopePlotly.then((plotly) => plotly.version.length > 0)")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(set(ids)) == len(ids)
    for number in (first, second):
        assert coloured(page, number, COLOURS["exposed"].light)
        assert (
            element(page, number).locator("h1").inner_text()
            == "50.0 % of the communication is hidden under compute."
        )
    assert (
        page.evaluate("getComputedStyle(document.body).margin") == "8px"
    )  # the notebook's page is left as it is


def test_the_view_is_told_and_set_exactly(page: Page, worked: osc.Timeline) -> None:
    first, second = show(page, worked), show(page, worked)
    page.evaluate("shown[0].model.set('shown', [30, 61])")
    page.wait_for_timeout(300)
    assert state(page, first, "shown") == [30, 61]
    element(page, first).get_by_role("button", name="Measure what is in view").click()
    assert "31 ns from 0.000030 to 0.000061 ms" in element(page, first).locator(".measured").inner_text()
    assert state(page, second, "shown") is None
    element(page, first).get_by_role("button", name="The whole timeline (0)").click()
    until(page, first, "shown", None)
    element(page, second).get_by_role("button", name="Zoom in (w)").click()
    until(page, second, "shown", [19, 81])
    assert state(page, first, "shown") is None


def test_a_click_picks_and_escape_lets_go(page: Page, worked: osc.Timeline) -> None:
    number = show(page, worked)
    labels = [lane.label for lane in worked._drawn.lanes]
    page.mouse.click(*point_at(page, number, 0.45, "AllReduce"))
    until(page, number, "pinned", [labels.index("stream 20"), 0])
    worked._widget.pinned = state(page, number, "pinned")
    picked = worked.picked
    assert picked is not None
    tip = element(page, number).locator(".tip").inner_text()
    assert picked["name"] in tip
    assert f"{picked['exposed_ns']} ns, 50.0 % of it" in tip
    page.keyboard.press("Escape")
    until(page, number, "pinned", None)


def test_keys_go_where_the_focus_is_or_the_pointer(page: Page, worked: osc.Timeline) -> None:
    first, second = show(page, worked), show(page, worked)
    page.mouse.click(*point_at(page, first, 0.45, "AllReduce"))
    page.wait_for_timeout(50)
    page.keyboard.press("m")
    assert element(page, first).locator(".measured").is_visible()
    assert element(page, second).locator(".measured").is_hidden()
    page.locator("#editor").focus()  # the pointer is over the first, and one writes elsewhere
    page.keyboard.type("0wasdm")
    assert page.locator("#editor").input_value() == "0wasdm"
    assert state(page, first, "shown") is None
    page.evaluate("document.activeElement.blur()")
    point_at(page, second, 0.45, "AllReduce")
    page.keyboard.press("m")
    assert element(page, second).locator(".measured").is_visible()
    page.mouse.move(2, 2)
    page.keyboard.press("Escape")  # nowhere
    assert element(page, second).locator(".measured").is_visible()


def test_jupyterlabs_shortcuts_are_held_off_what_has_the_focus(page: Page, worked: osc.Timeline) -> None:
    number = show(page, worked)
    for part in (".body", ".tools button", "summary"):
        element(page, number).locator(part).first.focus()
        assert page.evaluate("document.activeElement.getAttribute('data-lm-suppress-shortcuts')") == "true"


def test_the_notebooks_theme_is_its_own(page: Page, worked: osc.Timeline) -> None:
    number = show(page, worked)
    page.emulate_media(color_scheme="dark")  # the system's; the notebook is light
    page.wait_for_timeout(100)
    assert coloured(page, number, COLOURS["exposed"].light)
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_timeout(200)
    assert coloured(page, number, COLOURS["exposed"].dark)
    assert not coloured(page, number, COLOURS["exposed"].light)


def test_nothing_is_left_of_one_that_is_gone(page: Page, worked: osc.Timeline) -> None:
    first, second = show(page, worked), show(page, worked)
    page.evaluate("shown[0].cleanup()")
    assert page.evaluate("shown[0].el.querySelector('.ost').childElementCount") == 0
    assert page.evaluate("shown[0].model.heard.get('change:shown').length") == 0
    page.evaluate("shown[0].model.set('shown', [30, 61])")
    page.set_viewport_size({"width": 1000, "height": 1500})
    page.emulate_media(color_scheme="dark")
    page.keyboard.press("w")
    element(page, second).get_by_role("button", name="Zoom in (w)").click()
    until(page, second, "shown", [19, 81])
    third = show(page, worked, wait=False)
    page.evaluate("shown[2].cleanup()")  # before it could be drawn
    page.wait_for_timeout(500)
    assert page.evaluate("shown[2].el.querySelector('.ost').childElementCount") == 0
    assert (first, third) == (0, 2)


def test_names_are_text_in_the_widget(page: Page, tmp_path: Path) -> None:
    number = show(page, osc.timeline(osc.load(hostile(tmp_path))))
    point_at(page, number, 0.02, "<script>alert(1)</script>")
    assert element(page, number).locator("script, img").count() == 0
