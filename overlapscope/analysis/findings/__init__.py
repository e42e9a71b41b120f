"""What costs a program time, worst first, each with its cost, its evidence and what to try.

A rule is a pure function from what was measured to what it found, whatever that costs; a finding is what costs at least
:data:`THRESHOLD` of the step. Each rule's docstring defines its cost; ns over all ranks and steps, of which a finding
tells the mean. Costs may be about the same time, so they do not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...trace import Trace
from ..contention import Contention, contention
from ..overlap import Overlap, overlap
from ..steps import Steps, steps
from ..stragglers import stragglers
from .compute import contention_eats_the_gain, replicated_work
from .finding import THRESHOLD, Facts, Finding, Found, judge
from .host import exposed_copies, late_launches
from .late import skew, straggler
from .links import latency_bound, slow_communicator, slow_link
from .streams import exposed_communication
from .trust import graphs_traced_as_a_whole, profiler_overhead, too_few_steps, unknown_kernels

__all__ = ["RULES", "THRESHOLD", "Facts", "Finding", "findings", "of_facts"]

RULES: tuple[Callable[[Facts], Iterator[Found]], ...] = (
    graphs_traced_as_a_whole,
    profiler_overhead,
    exposed_communication,
    straggler,
    skew,
    slow_communicator,
    slow_link,
    latency_bound,
    contention_eats_the_gain,
    replicated_work,
    late_launches,
    exposed_copies,
    unknown_kernels,
    too_few_steps,
)
"""Of equal cost the earlier comes first."""


DOUBTS = ("unknown-kernels", "too-few-steps")
"""They say how far to trust the others, not what costs time: they come last."""


def findings(
    trace: Trace,
    result: Overlap | None = None,
    *,
    step_pattern: str | None = None,
    peak_gbs: float | None = None,
) -> tuple[Finding, ...]:
    """Find what costs time.

    Parameters
    ----------
    trace : Trace
    result : Overlap, optional
        What `overlap` found, with its windows; of the default window where left out.
    step_pattern : str, optional
        Names of step ranges, as in `windows`.
    peak_gbs : float, optional
        What the link between the ranks can carry each way, GB/s (1e9 bytes a second).

    Returns
    -------
    tuple of Finding
        Those that cost at least 2 % of the step, the most expensive first.

    Raises
    ------
    OptionError
        The pattern is not a regular expression.
    """
    result = overlap(trace) if result is None else result
    slowed: Contention = contention(trace, result.windows)
    each: Steps = steps(trace, step_pattern) if result.windows.mode == "steps" else Steps.none()
    return of_facts(Facts(trace, result, stragglers(result), slowed, each, peak_gbs, step_pattern))


def of_facts(facts: Facts) -> tuple[Finding, ...]:
    """The same of what was measured already."""
    judged = (judge(facts, found) for rule in RULES for found in rule(facts))
    return tuple(sorted(filter(None, judged), key=lambda finding: (finding.id in DOUBTS, -finding.cost_ns)))
