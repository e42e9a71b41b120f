"""Reports as pages: one offline HTML file each, for light and dark, paper and phones.

`of_report`, `of_scaling` and `of_comparison` make a `Page` of what the text reports are made of, `html` lays it out.
"""

from .blocks import Page
from .compare import of_comparison
from .render import html
from .report import of_report
from .scaling import of_scaling

__all__ = ["Page", "html", "of_comparison", "of_report", "of_scaling"]
