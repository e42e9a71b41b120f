"""Figures of how fast: a step on more ranks beside the ideal, and collectives by size."""

from __future__ import annotations

import math
from fractions import Fraction

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..analysis.bandwidth import Bandwidth
from ..analysis.rates import Rates
from ..analysis.scaling import TERMS, Scaling, Size
from ..report.scaling_text import WORDS
from ..report.words import duration, percent, size
from .frame import NS_PER_MS, brief, colour, framed, listed, plain

__all__ = ["collective_sizes", "scaling"]

KEYS = ("gemm", "exposed", "compute", "memory", "attention")
"""Colours of collectives beside one another; their markers differ, too."""

MARKERS = ("circle", "square", "diamond", "triangle-up", "x")


def scaling(result: Scaling) -> go.Figure:
    """A step's time on each number of ranks beside the ideal, and what the largest loses where.

    Parameters
    ----------
    result : Scaling
        What `overlapscope.scaling` found.

    Returns
    -------
    plotly.graph_objects.Figure
        Two lines and a waterfall from the ideal to the measured time, ms a step; ``customdata`` are the exact ns, as
        fractions ("601/2"), and those of the waterfall's terms add up to their difference.
    """
    sizes, last = result.sizes, result.sizes[-1]
    n = last.account.size
    figure = make_subplots(
        rows=1,
        cols=2,
        column_widths=[0.45, 0.55],
        subplot_titles=("time of a step", f"from the ideal to T({n})"),
        horizontal_spacing=0.12,
    )
    base = result.base.size
    ideal = f"ideal T({base})/N" if base == 1 else f"ideal T({base})·{base}/N"
    for name, times, dash, key in (
        ("measured T(N)", [s.time for s in sizes], "solid", "exposed"),
        (ideal, [s.ideal for s in sizes], "dash", "gemm"),
    ):
        figure.add_trace(
            go.Scatter(
                name=name,
                x=[s.account.size for s in sizes],
                y=[_ms(t) for t in times],
                customdata=[str(t) for t in times],
                mode="lines+markers",
                line={"dash": dash, "color": colour(key)},
            ),
            row=1,
            col=1,
        )
    figure.add_trace(_waterfall(last), row=1, col=2)
    ranks = [s.account.size for s in sizes]
    figure.update_xaxes(
        title="ranks N", type="log", tickvals=ranks, ticktext=list(map(str, ranks)), row=1, col=1
    )
    figure.update_yaxes(title="ms a step", rangemode="tozero", row=1, col=1)
    figure.update_xaxes(showgrid=False, tickangle=-60, row=1, col=2)
    figure.update_yaxes(title="ms a step", row=1, col=2)
    figure.update_layout(legend={"orientation": "h", "y": -0.25})
    return framed(figure, "A step on more ranks", _scaling_words(last, base), height=560)


def _ms(ns: Fraction) -> float:
    return float(ns / NS_PER_MS)


def _waterfall(last: Size) -> go.Waterfall:
    steps = [(WORDS[term], last.term(term)) for term in TERMS if last.term(term)]
    exact = [last.ideal, *(loss for _, loss in steps), last.time]
    return go.Waterfall(
        x=["ideal", *(words.replace(" ", "<br>") for words, _ in steps), f"T({last.account.size})"],
        y=[_ms(t) for t in exact],
        customdata=[str(t) for t in exact],
        measure=["absolute", *["relative"] * len(steps), "total"],
        increasing={"marker": {"color": colour("exposed")}},
        decreasing={"marker": {"color": colour("compute")}},
        totals={"marker": {"color": colour("busy")}},
        showlegend=False,
    )


def _scaling_words(last: Size, base: int) -> str:
    n = last.account.size
    most = max(TERMS, key=last.term)
    where = (
        f" Most of the loss is {WORDS[most]}, {duration(float(last.term(most)))}."
        if last.loss > 0 and last.term(most) > 0
        else ""
    )
    return (
        f"Lines of a step's time by number of ranks, and a waterfall. On {n} ranks it takes "
        f"{duration(float(last.time))}, the ideal is {duration(float(last.ideal))}: "
        f"{last.speedup:.2f} times as fast as on {base}, efficiency {percent(last.efficiency, 1)}.{where}"
    )


def collective_sizes(found: Bandwidth | Rates) -> go.Figure:
    """Algorithm and bus bandwidth of each collective by size, both axes logarithmic.

    Parameters
    ----------
    found : Bandwidth or Rates
        Of a sweep over sizes (`overlapscope.analysis.bandwidth`), or of any other program
        (`overlapscope.analysis.rates`).

    Returns
    -------
    plotly.graph_objects.Figure
        GB/s by bytes of the whole array, a line each; ``customdata`` is the time, ns. Where the link's peak is known it
        is a line, too. Sizes without a time are left out.
    """
    figure = go.Figure()
    timed = found.table[found.table["algbw_gbs"].notna()]
    for i, ((collective, n), some) in enumerate(timed.groupby(["collective", "ranks"], sort=False)):
        for column, words, dash in (("busbw_gbs", "busbw", "solid"), ("algbw_gbs", "algbw", "dot")):
            drawn = some[some[column].notna()]
            figure.add_trace(
                go.Scatter(
                    name=f"{plain(str(collective))} over {n} ranks, {words}",
                    x=drawn["bytes"].tolist(),
                    y=listed(drawn[column]),
                    customdata=listed(drawn["time_ns"]),
                    mode="lines+markers",
                    line={"dash": dash, "color": colour(KEYS[i % len(KEYS)])},
                    marker={"symbol": MARKERS[i % len(MARKERS)]},
                )
            )
    for peak in timed["peak_gbs"].dropna().unique().tolist():
        figure.add_hline(peak, line={"dash": "dash", "color": colour("busy")})
        # On a logarithmic axis a line stands at its value, and an annotation at the logarithm of its own.
        figure.add_annotation(
            text=f"link {peak:g} GB/s",
            xref="paper",
            x=1,
            xanchor="right",
            y=math.log10(peak),
            yanchor="bottom",
            showarrow=False,
        )
    figure.update_xaxes(title="size of the array (bytes)", type="log", exponentformat="SI", ticksuffix="B")
    figure.update_yaxes(title="bandwidth (GB/s)", type="log")
    return framed(figure, "Bandwidth of collectives by size", _size_words(timed))


def _size_words(timed: pd.DataFrame) -> str:
    said = []
    for (collective, n), some in timed.groupby(["collective", "ranks"], sort=False):
        known = some[some["busbw_gbs"].notna()]
        if not len(known):
            continue
        best = known.loc[known["busbw_gbs"].astype(float).idxmax()]
        of = (
            ""
            if pd.isna(best["peak_gbs"])
            else f", {percent(best['busbw_gbs'], best['peak_gbs'])} of the link"
        )
        said.append(
            f"{brief(str(collective))} over {n} ranks reaches {best['busbw_gbs']:.3g} GB/s busbw at "
            f"{size(int(best['bytes']))}{of}."
        )
    return " ".join(["Lines of bandwidth by size.", *said]) if said else "No lines: no bandwidth is known."
