"""How long a tensor-parallel step should take, by a model: nothing is run, nothing is measured.

::

    work       what a rank computes and moves in a block: FLOPs and bytes of every operation
    machine    what a GPU and a link do a second, each constant with its source and its option
    schedules  how work and exchange share the time: closed formulas
    step       the three together, for one number of ranks and for many
    request    from what was asked to what is computed

Stands on the standard library and the errors; no torch, no pandas.
"""

from .request import Request, answer
from .step import Prediction

__all__ = ["Prediction", "Request", "answer"]
