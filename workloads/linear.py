"""One column or one row layer, alone.

=============  ======================================================  ==============================================
layer          tensor parallel                                         and sequence parallel
=============  ======================================================  ==============================================
column-linear  forward -; backward all-reduce                          forward all-gather; backward all-gather,
                                                                       reduce-scatter
row-linear     forward all-reduce; backward -                          forward reduce-scatter; backward all-gather
=============  ======================================================  ==============================================
"""

from __future__ import annotations

import torch
from torch import Tensor

from .collectives import Ranks
from .draw import Draw
from .layer_config import ColumnConfig, RowConfig
from .parallel import ColumnParallelLinear, RowParallelLinear
from .program import LayerProgram

__all__ = ["ColumnProgram", "RowProgram", "build"]


class ColumnProgram(LayerProgram[ColumnConfig]):
    """A column layer: its output, and the gradient from above, are this rank's part of the inner width."""

    def layer(self, draw: Draw) -> ColumnParallelLinear:
        """The layer."""
        return ColumnParallelLinear(*draw.linear(*self.config.ends()), self.layout, "column")

    def leave(self, full: Tensor) -> Tensor:
        """This rank's part of the full output."""
        return self.layout.part(full)


class RowProgram(LayerProgram[RowConfig]):
    """A row layer: its input is this rank's part of the inner width."""

    def layer(self, draw: Draw) -> RowParallelLinear:
        """The layer."""
        return RowParallelLinear(*draw.linear(*self.config.ends()), self.layout, "row")

    def enter(self, full: Tensor) -> Tensor:
        """This rank's part of the full input."""
        return self.layout.part(full)


def build(config: ColumnConfig | RowConfig, ranks: Ranks, device: torch.device) -> ColumnProgram | RowProgram:
    """This rank's share of the layer."""
    if isinstance(config, ColumnConfig):
        return ColumnProgram(config, ranks, device)
    return RowProgram(config, ranks, device)
