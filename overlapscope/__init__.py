"""How much communication hides under compute in a tensor-parallel program, what stays exposed, and why.

::

    import overlapscope as osc

    trace = osc.load("trace.sqlite")     # or rank*.json.gz, or a run directory
    result = osc.overlap(trace)
    result.ranks, result.collectives     # DataFrames, integer nanoseconds

The names are imported when first used: ``overlapscope --help`` needs neither pandas nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import figures
    from .analysis.bandwidth import Bandwidth, bandwidth
    from .analysis.contention import Contention, contention
    from .analysis.findings import Finding, findings
    from .analysis.names import tally
    from .analysis.overlap import Overlap, overlap
    from .analysis.regions import by_range, by_stream
    from .analysis.scaling import Scaling, account, scaling
    from .analysis.steps import Steps, steps
    from .analysis.window import Windows, windows
    from .classify import Classifier, Collective, Kind
    from .errors import InputError, OptionError, OverlapscopeError, RulesError, RunError, UserError
    from .formats import load
    from .report.timeline import Timeline, timeline
    from .runs import Run, Sweep, compare, run, scale
    from .trace import NA, Provenance, Trace

__version__ = "0.1.0"

_HOME = {
    "Bandwidth": "analysis.bandwidth",
    "Classifier": "classify",
    "Collective": "classify",
    "Contention": "analysis.contention",
    "Finding": "analysis.findings",
    "InputError": "errors",
    "Kind": "classify",
    "NA": "trace",
    "OptionError": "errors",
    "Overlap": "analysis.overlap",
    "OverlapscopeError": "errors",
    "Provenance": "trace",
    "RulesError": "errors",
    "Run": "runs",
    "RunError": "errors",
    "Scaling": "analysis.scaling",
    "Steps": "analysis.steps",
    "Sweep": "runs",
    "Timeline": "report.timeline",
    "Trace": "trace",
    "UserError": "errors",
    "Windows": "analysis.window",
    "account": "analysis.scaling",
    "bandwidth": "analysis.bandwidth",
    "by_range": "analysis.regions",
    "by_stream": "analysis.regions",
    "compare": "runs",
    "contention": "analysis.contention",
    "findings": "analysis.findings",
    "load": "formats",
    "overlap": "analysis.overlap",
    "run": "runs",
    "scale": "runs",
    "scaling": "analysis.scaling",
    "steps": "analysis.steps",
    "tally": "analysis.names",
    "timeline": "report.timeline",
    "windows": "analysis.window",
}

__all__ = [
    "NA",
    "Bandwidth",
    "Classifier",
    "Collective",
    "Contention",
    "Finding",
    "InputError",
    "Kind",
    "OptionError",
    "Overlap",
    "OverlapscopeError",
    "Provenance",
    "RulesError",
    "Run",
    "RunError",
    "Scaling",
    "Steps",
    "Sweep",
    "Timeline",
    "Trace",
    "UserError",
    "Windows",
    "__version__",
    "account",
    "bandwidth",
    "by_range",
    "by_stream",
    "compare",
    "contention",
    "figures",
    "findings",
    "load",
    "overlap",
    "run",
    "scale",
    "scaling",
    "steps",
    "tally",
    "timeline",
    "windows",
]


def __getattr__(name: str) -> Any:
    if name not in (*_HOME, "figures"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "figures":  # a module of its own, which brings plotly
        return import_module(".figures", __name__)
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
