"""The figures of a report as plain Plotly figures: titles, axes with units, and a sentence that says what is seen.

::

    result = osc.overlap(trace)
    figure = osc.figures.breakdown(result)
    figure.show()
    figure.layout.meta["alt"]     # what it shows, in words and numbers

Times are ms (10^6 ns), rates GB/s (10^9 bytes a second). What is drawn is what the tables hold: ``customdata`` has the
exact ns that each value is made of.
"""

from .files import FORMATS, of_report, save
from .speed import collective_sizes, scaling
from .time import breakdown, overlap_by_range, skew

__all__ = [
    "FORMATS",
    "breakdown",
    "collective_sizes",
    "of_report",
    "overlap_by_range",
    "save",
    "scaling",
    "skew",
]
