"""A report for programs: JSON, and its table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import pandas as pd

from ..analysis.bounds import Bound
from . import findings
from .document import Document

__all__ = ["SCHEMA_VERSION", "TABLES", "json_text", "records", "table"]

SCHEMA_VERSION = 1
"""Of the JSON. Keys may be added under one version; none changes its meaning."""


def json_text(document: Document) -> str:
    """The whole report; every time an integer of ns, what does not exist null."""
    return json.dumps(as_dict(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_dict(document: Document) -> dict[str, Any]:
    asked = (
        {} if document.by in (None, "collective", "rank") else {f"by_{document.by}": records(_by(document))}
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "provenance": _provenance(document),
        "ranks": records(document.overlap.ranks),
        "bounds": [_bound(bound) for bound in document.bounds.values()],
        "collectives": records(document.overlap.collectives),
        "stragglers": records(document.stragglers),
        "contention": _contention(document),
        "findings": findings.records(document),
        "bandwidth": [] if document.bandwidth is None else records(document.bandwidth.table),
        "bandwidth_by_size": records(document.rates.table),
        "bandwidth_by_group": records(document.rates.groups),
        **asked,
        "unclassified": records(document.unclassified[["name", "count", "sum_ns"]]),
        "warnings": list(document.warnings),
    }


def _provenance(document: Document) -> dict[str, Any]:
    said, window = document.provenance, document.overlap.windows
    return {
        "sources": [
            {"path": s.path, "format": s.format, "tool": s.tool, "schema": s.schema} for s in said.sources
        ],
        "lanes": said.lanes,
        "gpus": list(document.gpus),
        "ranks_from": said.ranks_from,
        "world_size": said.world_size,
        "clock": said.clock,
        "alignment": {
            "how": document.overlap.matching.clocks.how,
            "ranks": {
                str(rank): {
                    "offset_ns": clock.offset,
                    "drift": clock.drift,
                    "spread_ns": clock.spread,
                    "ends": clock.ends,
                }
                for rank, clock in sorted(document.overlap.matching.clocks.of_rank.items())
            },
        },
        "origin_ns": said.origin_ns,
        "command": said.command,
        "link": said.link,
        "peak": document.peak and {"gbs": document.peak.gbs, "how": document.peak.how},
        "from_ranges": said.from_ranges,
        "window": {
            "mode": window.mode,
            "steps": list(window.steps),
            "left_out": list(window.left_out),
            "without_ops": list(window.without_ops),
            "n_ops_outside": document.n_ops_outside,
            "bounds_ns": {
                str(rank): [[int(a), int(b)] for a, b in zip(w.start, w.end, strict=True)]
                for rank, w in window.of_rank.items()
            },
        },
        "unmatched": [asdict(refused) for refused in document.overlap.matching.refused],
        "dropped": [{"count": d.count, "what": d.what, "why": d.why} for d in said.dropped],
    }


def _bound(bound: Bound) -> dict[str, Any]:
    return {
        "ideal": bound.ideal,
        "gain_at_most_ns": bound.gain_ns,
        "gain_at_most_ratio": bound.ratio,
        "speedup_at_most": bound.speedup,
        "ranks": [{"rank": rank, "gain_at_most_ns": gain} for rank, gain in bound.ranks],
    }


def _contention(document: Document) -> dict[str, Any]:
    found = document.contention
    return {
        "hidden_ns": found.hidden_ns,
        "contention_ns": _halves(found.total_ns),
        "net_gain_ns": _halves(found.net_gain_ns),
        "slowdown": found.slowdown,
        "n_overlapped": found.n_overlapped,
        "n_measured": found.n_measured,
        "kernels": records(found.kernels),
    }


def _halves(ns: Fraction | None) -> int | float | None:
    """A whole number of ns as one; a half, which a median may end in, as a decimal."""
    return ns if ns is None else int(ns) if ns.denominator == 1 else float(ns)


def _by(document: Document) -> pd.DataFrame:
    assert document.table is not None
    return document.table


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain Python values; a missing one is None."""
    columns = {c: table[c].astype(object).where(table[c].notna(), None).tolist() for c in table.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


TABLES: dict[str, Callable[[Document], pd.DataFrame]] = {
    "ranks": lambda document: document.overlap.ranks,
    "collectives": lambda document: document.overlap.collectives,
    "instances": lambda document: document.overlap.instances,
    "stragglers": lambda document: document.stragglers,
    "bounds": lambda document: pd.DataFrame([_bound(bound) for bound in document.bounds.values()]).drop(
        columns="ranks"
    ),
    "bandwidth": lambda document: (
        (document.rates if document.bandwidth is None else document.bandwidth).table
    ),
    "groups": lambda document: document.rates.groups,
    "contention": lambda document: document.contention.kernels,
    "ranges": lambda document: document.ranges,
    "streams": lambda document: document.streams,
    "steps": lambda document: document.steps.table,
    "names": lambda document: document.names,
    "findings": lambda document: _findings(document),
}
"""All tables of a report, by the names of `report --table`."""


def _findings(document: Document) -> pd.DataFrame:
    """One row a finding; its evidence differs from rule to rule and stands in the JSON report."""
    columns = ("id", "title", "cost_ns", "share", "ranks", "path", "try")
    rows = [
        (f.id, f.title, round(f.cost_ns), f.share, f.ranks, f.range or (), f.advice)
        for f in document.findings
    ]
    return pd.DataFrame(rows, columns=list(columns)).astype({"cost_ns": "int64", "share": "float64"})


def table(document: Document) -> pd.DataFrame:
    """The table of ranks, of a sweep that of sizes, or what was asked for."""
    if document.by is not None:
        return _by(document)
    return document.overlap.ranks if document.bandwidth is None else document.bandwidth.table
