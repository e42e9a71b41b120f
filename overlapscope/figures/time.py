"""Figures of where time goes: by rank, by range of the program, and who comes late."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from ..analysis.overlap import Overlap
from ..report.breakdown import PLACES, over_ranks
from ..report.words import duration, percent
from .frame import NS_PER_MS, bars, brief, framed, listed, plain

__all__ = ["breakdown", "overlap_by_range", "skew"]

PARTS = (
    ("compute_ns", "compute", "compute", ""),
    ("exposed_wait_ns", "exposed: waiting for late ranks", "exposed", "/"),
    ("exposed_wire_ns", "exposed: transfer", "exposed", ""),
    ("exposed_unsplit_ns", "exposed: waiting or transfer", "exposed", "x"),
    ("exposed_memory_ns", "exposed copies, memsets", "memory", ""),
    ("idle_ns", "idle", "idle", ""),
)
"""Columns of `Overlap.ranks` that add up to the window, with words, colour and pattern."""

MOST_RANGES = 30  # bars that a page holds


def breakdown(result: Overlap) -> go.Figure:
    """Where the time of each rank went: stacked bars that add up to its window.

    Parameters
    ----------
    result : Overlap
        What `overlapscope.overlap` found.

    Returns
    -------
    plotly.graph_objects.Figure
        One trace a part, in ms, its ``customdata`` the ns of ``result.ranks``.
    """
    ranks = result.ranks
    places = list(map(str, ranks["rank"]))
    figure = go.Figure(
        [
            bars(words, key, places, listed(ranks[column]), pattern=pattern)
            for column, words, key, pattern in PARTS
            if ranks[column].fillna(0).any()
        ]
    )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(title="rank", type="category", showgrid=False)
    figure.update_yaxes(title="time (ms)")
    return framed(figure, "Where the time of each rank went", _breakdown_words(ranks))


def _breakdown_words(ranks: pd.DataFrame) -> str:
    n, total = len(ranks), int(ranks["window_ns"].sum())
    shares = [
        f"{percent(int(ranks[column].sum()), total)} {words}"
        for column, words in (
            ("compute_ns", "compute"),
            ("exposed_comm_ns", "exposed communication"),
            ("exposed_memory_ns", "exposed copies and memsets"),
            ("idle_ns", "idle"),
        )
    ]
    most, exposed = max(zip(ranks["rank"], ranks["exposed_comm_ns"], strict=True), key=lambda r: r[1])
    return (
        f"Stacked bars, one for each of {n} rank{'s' * (n != 1)}: of {duration(total / n)} on average "
        f"{', '.join(shares)}. Rank {most} has most exposed communication, {duration(exposed)}."
    )


def overlap_by_range(table: pd.DataFrame, *, most: int = MOST_RANGES) -> go.Figure:
    """What communication of each range of the program was hidden and what was exposed.

    Parameters
    ----------
    table : DataFrame
        What `overlapscope.by_range` found.
    most : int
        Ranges shown: those with most communication, in the order of the program.

    Returns
    -------
    plotly.graph_objects.Figure
        Bars in ms, means of the ranks; ``customdata`` is the ns of all ranks together. A range holds those inside it.
    """
    n = table["rank"].nunique()
    means = over_ranks(table)
    means = means[means["comm_ns"] > 0]
    shown = means.loc[sorted(means.sort_values("comm_ns", ascending=False, kind="stable").index[:most])]
    sums = table.groupby(["place", "path"], sort=False)[["overlap_ns", "exposed_comm_ns"]].sum()
    keys = list(zip(shown["place"], shown["path"], strict=True))
    labels = [PLACES[place] if not path else " › ".join(path) for place, path in keys]
    # Places of bars are numbers: two paths that read alike are two bars.
    rows = list(range(len(keys)))
    figure = go.Figure(
        [
            bars(words, key, rows, [int(sums.loc[k, column]) for k in keys], per=n, orientation="h")
            for words, key, column in (
                ("hidden", "comm", "overlap_ns"),
                ("exposed", "exposed", "exposed_comm_ns"),
            )
        ]
    )
    figure.update_layout(barmode="group")
    figure.update_xaxes(title=f"communication (ms, mean of {n} rank{'s' * (n != 1)})", exponentformat="none")
    figure.update_yaxes(
        title="range",
        tickvals=rows,
        ticktext=list(map(plain, labels)),
        autorange="reversed",
        automargin=True,
        showgrid=False,
    )
    alt = _range_words(shown, labels, len(means))
    return framed(figure, "Communication by range of the program", alt, height=240 + 32 * len(rows))


def _range_words(shown: pd.DataFrame, labels: Sequence[str], n: int) -> str:
    if not n:
        return "No bars: no range of the program has communication."
    most = shown["exposed_comm_ns"].to_numpy().argmax()
    row = shown.iloc[most]
    each = f"{n} range{'s' * (n != 1)} with"
    which = f"the {len(shown)} of {n} ranges with most" if len(shown) < n else each
    return (
        f"Pairs of bars, hidden and exposed, for {which} communication. Most is exposed in {brief(labels[most])}: "
        f"{duration(row['exposed_comm_ns'])}, beside {duration(row['overlap_ns'])} hidden."
    )


def skew(result: Overlap) -> go.Figure:
    """How much later than the first each rank began each matched collective.

    Only collectives of which the wait of every rank is known; from ``wait_ns`` of ``result.instances``: the rank
    that waited longest was the first.

    Returns
    -------
    plotly.graph_objects.Figure
        A heatmap in ms, ranks × collectives; ``customdata`` is ns.
    """
    comm = result.instances[result.instances["match"].notna()]
    waits = comm.assign(known=comm["wait_ns"].notna())
    waits = waits[waits.groupby("match")["known"].transform("all")]
    late = (waits.groupby("match")["wait_ns"].transform("max") - waits["wait_ns"]).astype("int64")
    order = waits.groupby("match")["start"].min().sort_values(kind="stable").index
    table = (
        waits.assign(late=late)
        .pivot(index="rank", columns="match", values="late")
        .reindex(columns=order)
        .astype("Int64")
    )
    kinds = waits.drop_duplicates("match").set_index("match")["collective"].reindex(order)
    exact = [listed(row) for _, row in table.iterrows()]
    places = list(map(str, table.index))
    figure = go.Figure(
        go.Heatmap(
            x=list(range(len(order))),
            y=places,
            z=[[None if ns is None else ns / NS_PER_MS for ns in row] for row in exact],
            customdata=exact,
            text=[kinds.tolist()] * len(exact),
            colorscale="Cividis",  # the same to colour-blind eyes, and light to dark in grey
            colorbar={"title": "later than the<br>first (ms)"},
            hovertemplate="rank %{y}, collective %{x} (%{text}): %{z} ms<extra></extra>",
        )
    )
    figure.update_xaxes(title="matched collective (number, in order of time)")
    figure.update_yaxes(title="rank", type="category", autorange="reversed")
    height = 240 + 32 * max(len(places), 4)
    return framed(figure, "Who came late to which collective", _skew_words(table), height=height)


def _skew_words(table: pd.DataFrame) -> str:
    if not table.size:
        return "Empty: of no collective is it known when every rank began it."
    latest = table.stack()
    rank, match = latest.idxmax()
    number = table.columns.get_loc(match)
    last = (table.eq(table.max()) & (table.max() > 0)).sum(axis=1)
    often = last.idxmax()
    return (
        f"A heatmap of {len(table)} ranks by {len(table.columns)} collectives. The latest start is that of rank {rank} "
        f"in collective {number}, {duration(int(latest.max()))} after the first; rank {often} came last most often, "
        f"{last[often]} of {len(table.columns)} times."
    )
