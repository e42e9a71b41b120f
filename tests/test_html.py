"""The report as a page before a browser sees it: what stands in it, what a name cannot do, what the command refuses."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import compared
import overlapscope as osc
import scaled
from made import made
from overlapscope.cli import main
from overlapscope.cli import pages as command_pages
from overlapscope.report import document, findings, markdown_text, opening, text
from overlapscope.report import html as pages
from overlapscope.report.html.render import _colours, _file
from test_report import two_ranks
from test_scale import handmade
from test_timeline import DATA, HOSTILE, hostile

PAYLOAD = re.compile(r'<script type="application/octet-stream".*?</script>', re.DOTALL)


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def page_of(trace: osc.Trace, **options: Any) -> str:
    by = options.pop("by", None)
    return pages.html(pages.of_report(document.build(trace, by=by), **options))


class Read(HTMLParser):
    """What a reader without a script gets: headings, ids, links, tables by the heading above them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.headings: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: dict[str, int] = {}
        self.open: list[str] = []
        self.tables: dict[str, list[list[tuple[str, str | None]]]] = {}
        self.text: list[str] = []
        self._cell: list[str] | None = None
        self._value: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.open.append(tag)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "a":
            self.links.append(str(given["href"]))
        if tag in ("h1", "h2", "h3"):
            self.headings.append((tag, ""))
        if tag == "table":
            self.name = self.headings[-1][1]
            self.tables.setdefault(self.name, [])
        if tag == "tr":
            self.tables[self.name].append([])
        if tag in ("td", "th"):
            self._cell, self._value = [], given.get("data-value")

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()
        if tag in ("td", "th") and self._cell is not None:
            self.tables[self.name][-1].append(("".join(self._cell), self._value))
            self._cell = None

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        if self.headings and self.open[-1] in ("h1", "h2", "h3"):
            tag, words = self.headings[-1]
            self.headings[-1] = (tag, words + data.strip())
        self.text.append(data)


@pytest.fixture
def trace(tmp_path: Path) -> osc.Trace:
    return two_ranks(tmp_path)


# -- what stands in it ---------------------------------------------------------------------------------------


def test_sections_stand_in_order_and_every_link_leads_to_one() -> None:
    page = Read(page_of(osc.load(DATA)))
    levels = [int(tag[1]) for tag, _ in page.headings]
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert [words for tag, words in page.headings if tag == "h2"] == [
        "Findings",
        "Where the time went",
        "Upper bounds of the gain, all else as recorded",
        "Communication",
        "Who was waited for",
        "Bandwidth",
        "Steps",
        "Where in the program",
        "By stream",
        "Names",
        "What was captured",
        "Good to know",
        "Timeline",
    ]
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert (page.tags["main"], page.tags["nav"], page.tags["header"]) == (1, 1, 1)


def test_words_are_those_of_the_text_report(trace: osc.Trace) -> None:
    said = document.build(trace)
    text = " ".join(" ".join(Read(pages.html(pages.of_report(said, timeline=False))).text).split())
    told = findings.told(said)
    assert not isinstance(told, str)
    wanted = [*opening.headline(said), *said.warnings, *(f.evidence for f in told), *(f.title for f in told)]
    wanted += [words for _, words in opening.setting(said)]
    for sentence in wanted:
        assert sentence in text


def test_figures_are_those_of_the_json_report(trace: osc.Trace) -> None:
    page = Read(page_of(trace, timeline=False))
    result = osc.overlap(trace)
    ranks = page.tables["Where the time went"]
    head = [words for words, _ in ranks[0]]
    assert head == [
        "rank",
        "window",
        "= compute",
        "+ exposed comm",
        "+ exposed memory",
        "+ idle",
        "comm",
        "hidden",
    ]
    keys = [
        "rank",
        *(f"{c}_ns" for c in ("window", "compute", "exposed_comm", "exposed_memory", "idle", "comm")),
    ]
    shown = [[int(value or "") for _, value in row[:-1]] for row in ranks[1:3]]
    assert shown == result.ranks[keys].to_numpy().tolist()
    assert [words for words, _ in ranks[4]] == [
        "share",
        "100.0 %",
        "50.0 %",
        "25.0 %",
        "12.5 %",
        "12.5 %",
        "31.2 %",
        "",
    ]


def test_bars_add_up_to_the_window(trace: osc.Trace) -> None:
    result = osc.overlap(trace)
    page = page_of(trace, timeline=False)
    bars = re.findall(r'<span class="name">rank (\d+)</span>\s*<span class="bar".*?</span>', page)
    assert bars == ["0", "1"]
    rows = re.findall(r'<span class="name">rank \d+</span>\s*(<span class="bar".*?</span>)', page, re.DOTALL)
    for row, window in zip(rows, result.ranks["window_ns"], strict=True):
        assert sum(map(int, re.findall(r'data-value="(\d+)"', row))) == window
        assert sum(map(float, re.findall(r"width:([\d.]+)%", row))) == pytest.approx(100, abs=0.01)


@pytest.mark.parametrize(
    ("by", "words"),
    [("stream", "Every stream"), ("step", "Every step"), ("rank", "rank"), ("collective", "By rank")],
)
def test_a_breakdown_that_is_asked_for_is_open(trace: osc.Trace, by: str, words: str) -> None:
    usual, asked = (page_of(trace, by=one, timeline=False) for one in (None, by))
    opened = re.findall(r"<details open>\s*<summary>(.*?):", asked)
    assert re.findall(r"<details open>", usual) == []
    assert opened == (
        []
        if by == "rank"
        else [next(w for w in re.findall(r"<summary>(.*?):", usual) if w.startswith(words))]
    )


def test_the_tree_is_folded_to_what_exposes_most_unless_asked_for() -> None:
    """40 ranges hold one range each; five of them communicate."""
    ranges, ops = [], []
    for i in range(40):
        at = 100 * i
        ranges += [{"rank": 0, "thread": 1, "start": at, "end": at + 90, "name": f"layer {i}"}]
        ranges += [{"rank": 0, "thread": 1, "start": at + 1, "end": at + 80, "name": f"inside {i}"}]
        kind = "comm" if i < 5 else "gemm"
        ops += [{"rank": 0, "start": at + 10, "end": at + 60, "kind": kind, "launch": at + 5, "thread": 1}]
    said = made(ops, ranges, ranks=1)
    for by, opened in (
        (None, 5),
        ("range", 40),
    ):  # of the twelve worst rows ten are these five and what they hold
        rows = re.findall(r'<tr id="range-\d+"[^>]*>', page_of(said, by=by, timeline=False))
        assert len(rows) == 80
        assert sum("data-branch" in row for row in rows) == 40
        assert sum("data-open" in row for row in rows) == opened


def test_of_very_many_ranks_those_that_expose_most_have_bars() -> None:
    ops = [{"rank": r, "start": 0, "end": 100 + (r if r < 70 else 0), "kind": "comm"} for r in range(72)]
    page = page_of(made(ops, ranks=72), timeline=False)
    assert re.findall(r'<span class="name">rank (\d+)<', page) == [str(r) for r in range(6, 70)]
    assert "Bars of the 64 ranks of 72 that expose most; the table has all." in page
    assert len(Read(page).tables["Where the time went"]) == 1 + 72 + 2


def test_a_trace_without_communication_is_a_page_too(tmp_path: Path) -> None:
    page = Read(
        page_of(
            made(
                [
                    {"rank": 0, "start": 0, "end": 75, "kind": "gemm"},
                    {"rank": 0, "start": 90, "end": 100, "kind": "memory"},
                ],
                ranks=1,
            )
        )
    )
    assert page.headings[0] == ("h1", "No communication was recorded in this window: nothing to hide.")
    assert "Communication" not in page.tables


def test_sizes_of_pages(trace: osc.Trace) -> None:
    """Of a small trace: Plotly is 2.0 MB of it, and comes only with what it draws."""
    assert 2_000_000 < len(page_of(trace)) < 3_000_000
    assert len(page_of(trace, timeline=False)) < 100_000


# -- what a name cannot do -----------------------------------------------------------------------------------


def test_names_are_text(tmp_path: Path) -> None:
    said = osc.load(hostile(tmp_path))
    page = page_of(said, timeline=False)
    assert page.count("<script") == page.count("</script>") == 1
    for forbidden in ("<script>alert", "<img", "\x1b", "\u202e", "\u200f", "x" * 3000):
        assert forbidden not in page
    text = " ".join(Read(page).text)
    for shown in (
        "<script>alert(1)</script>",
        "\\x1b[31mred\\x1b[0m",
        "a\\u202egnp.exe\\u200f",
        "{title}%s${1}",
        HOSTILE[2],
    ):
        assert shown in text
    assert len(page) < 200_000
    assert page_of(said).count("<script") == 5  # three of ours, the payload and Plotly


def test_the_page_asks_for_nothing() -> None:
    page = PAYLOAD.sub("", page_of(osc.load(DATA)))
    assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(|\ssrc=", page)
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


# -- colours -------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_aa_in_both_themes() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    style = _file("page.css")
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", style.split("@media")[0]))
    dark = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", style.split("@media")[1]))
    assert light.keys() == dark.keys()
    for theme in (light, dark):
        for ink in ("ink", "muted", "hot", "good", "edge"):
            for behind in ("page", "soft"):
                assert contrast(theme[ink], theme[behind]) >= 4.5, (ink, behind)
    meant = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in _colours().split("@media")]
    for theme, colours in zip((light, dark), meant, strict=True):
        for key in ("busy", "exposed"):  # the parts of a bar that mean something bad, or all of it
            assert contrast(colours[key], theme["page"]) >= 3, key


# -- the commands --------------------------------------------------------------------------------------------


def test_report_writes_a_page(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    place = tmp_path / "report.html"
    assert call("report", DATA, "--format", "html", "-o", place) == 0
    assert place.read_text().startswith("<!doctype html>")
    assert call("report", DATA, "--format", "html", "--no-timeline") == 0
    assert capsysbinary.readouterr().out.startswith(b"<!doctype html>")
    assert {p.name for p in tmp_path.iterdir()} == {"report.html"}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert call(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


def test_a_terminal_is_sent_no_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "--format html: is nothing for a terminal" in refused(
        capsys, "report", "not-read", "--format", "html"
    )


def test_nothing_is_overwritten_and_it_is_said_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    run = compared.run(tmp_path / "a", compared.SERIAL)
    before = sorted(tmp_path.rglob("*"))
    for command in (
        ["report", "not-read", "--format", "html", "-o", page],
        ["run", "--tp", "2", "-o", tmp_path / "never", "--html", page],
        ["scale", "--tp", "1,2", "-o", tmp_path / "never", "--html", page],
        ["compare", run, run, "--html", page],
    ):
        assert f"{page}: exists already" in refused(capsys, *command)
    assert "its folder does not exist" in refused(capsys, "run", "--html", tmp_path / "no" / "page.html")
    assert "is one of the files to read" in refused(
        capsys, "compare", run, run, "--html", run / "run.json", "--force"
    )
    assert sorted(tmp_path.rglob("*")) == before
    assert page.read_text() == "mine"


def test_compare_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = compared.run(tmp_path / "a", compared.SERIAL), compared.run(tmp_path / "b", compared.UNDER)
    assert call("compare", a, b, "--format", "json", "--html", tmp_path / "c.html") == 0
    report = json.loads(capsys.readouterr().out)
    page = Read((tmp_path / "c.html").read_text())
    rows = page.tables["Medians of the steps, mean of the ranks"][1:]
    for figure, row in zip(report["figures"], rows, strict=True):
        if figure["unit"] == "ns":
            shown = [None if value is None else float(value) for _, value in row[1:4]]
            assert shown == [figure["a"], figure["b"], figure["change"]]
        assert (
            row[6][0]
            == {"less": "less", "more": "more", "untold": "no", "few": "few", None: "n/a"}[figure["verdict"]]
        )
    tones = re.findall(r'class="verdict (\w*)">(\w+)<', (tmp_path / "c.html").read_text())
    assert tones[0] == ("better", "less")


def scale_page(tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """The page of the worked example, and its JSON."""
    from overlapscope.figures import scaling as draw
    from overlapscope.report import scaling

    manifest = {
        "workload": "block", "options": {"hidden": 32}, "device": "cuda", "recorder": "nsys", "threads_per_rank": 1,
        "hardware": {"cpu": "a CPU", "cores": 2, "gpus": [{"name": "H100"}]},
    }  # fmt: skip
    runs = [
        scaling.measure(f"tp{n}", {**manifest, "tp": n}, osc.load(make(tmp_path / f"{n}.sqlite")))
        for n, make in ((1, scaled.one_rank), (2, scaled.two_ranks))
    ]
    said = scaling.build("sweep", runs)
    return pages.html(pages.of_scaling(said, draw(said.scaling))), json.loads(scaling.json_text(said))


def test_scaling_is_a_page(tmp_path: Path) -> None:
    text, report = scale_page(tmp_path)
    page = Read(text)
    account = {
        row[0][0].strip(): [value for _, value in row[1:]]
        for row in page.tables["Strong scaling"]
        if len(row) == 3
    }
    sizes = report["sizes"]
    assert [float(v or "") for v in account["T(N)"]] == [s["T_ns"] for s in sizes] == [500, 300.5]
    assert [float(v or "") for v in account["= loss, which is"]] == [s["loss_ns"] for s in sizes]
    assert [float(v or "") for v in account["speed-up"]] == [s["speedup"] for s in sizes]
    (alt,) = re.findall(r'role="img" aria-label="([^"]*)" data-chart="chart-scaling"', text)
    assert alt.startswith(
        "Lines of a step&#39;s time by number of ranks, and a waterfall. On 2 ranks it takes 300"
    )


def test_a_large_page_is_written_and_its_size_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("overlapscope.cli.pages.LARGE", 1_000_000)
    assert call("report", DATA, "--format", "html", "-o", tmp_path / "large.html") == 0
    assert "the page has 2.1 MB, most of it the timeline" in capsys.readouterr().err
    assert call("report", DATA, "--format", "html", "--no-timeline", "-o", tmp_path / "small.html") == 0
    assert capsys.readouterr().err == ""


def test_scale_replaces_a_page_of_runs_that_exist_if_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [handmade(tmp_path, f"tp{n}", n) for n in (1, 2)]
    page = tmp_path / "page.html"
    assert call("scale", *runs, "--html", page) == 0
    assert "2 ranks are" in capsys.readouterr().out
    assert "exists already" in refused(capsys, "scale", *runs, "--html", page)
    page.write_text("")
    assert call("scale", *runs, "--html", page, "--force") == 0
    assert "overlapscope <span>strong scaling" in page.read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("made/run.json", "is one of the run's own files"),
        ("made/trace.sqlite", "is one of the run's own files"),
        ("made/scale.json", "is one of the run's own files"),
        ("made/tp1/run.json", "is one of the run's own files"),
        ("made", "is where the run is written to"),
        ("runs", "is where the run is written to"),
        ("made/page.html", None),
        ("page.html", None),
        ("nowhere/page.html", "its folder does not exist"),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_page_beside_what_a_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str | None, there: bool
) -> None:
    """Whether or not an earlier run is in the folder, which is replaced."""
    monkeypatch.chdir(tmp_path)
    made = Path("runs/block") if name == "runs" else Path("made")
    if there:
        made.mkdir(parents=True)
        for own in ("run.json", "trace.sqlite", "scale.json"):
            (made / own).write_text("{}")
    if said is None:
        command_pages.check(Path(name), force=True, made=made)
    else:
        with pytest.raises(osc.OptionError, match=said):
            command_pages.check(Path(name), force=True, made=made)


def test_a_page_and_the_report_itself_go_different_ways(tmp_path: Path) -> None:
    for path, output in ((Path("/dev/stdout"), None), (tmp_path / "one", tmp_path / "." / "one")):
        with pytest.raises(osc.OptionError, match="is where the report itself goes; name another file"):
            command_pages.check(path, force=True, output=output)
    command_pages.check(tmp_path / "one", force=True, output=tmp_path / "other")


def test_a_trace_in_which_nothing_lasts() -> None:
    """Every face says so, and none draws it."""
    trace = made([{"rank": 0, "start": 5, "end": 5, "kind": "gemm"}], ranks=1)
    built = document.build(trace)
    page = pages.html(pages.of_report(built))
    for said in (page, text.render(built), markdown_text.render(built)):
        assert "empty: no op in it lasts" in said
    assert 'id="timeline"' not in page
    with pytest.raises(osc.OptionError, match="holds nothing to draw: no op in it lasts"):
        osc.timeline(trace)
