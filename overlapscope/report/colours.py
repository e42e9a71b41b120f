"""The colours of every picture: one meaning, one colour.

They are those of Okabe and Ito (2008), made to be told apart with red-, green- or blue-blind eyes: compute is cold
(blue, sky blue, bluish green), communication warm. Communication that is hidden is what one wants, so it is pale;
what is exposed is the darkest and most saturated of the warm ones, and the eye goes there. They differ in
lightness, too, so that a print in grey still tells them apart. On a dark page all are lighter, and hidden
communication is the one that recedes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COLOURS", "Colour"]


@dataclass(frozen=True, slots=True)
class Colour:
    """What one thing looks like on a light and on a dark page, and how a legend calls it."""

    words: str
    light: str
    dark: str
    light_text: str = "#ffffff"  # of a name written on it
    dark_text: str = "#0b0e12"


COLOURS: dict[str, Colour] = {
    "gemm": Colour("GEMM", "#0072b2", "#4aa3e0"),
    "attention": Colour("attention", "#56b4e9", "#9bd8fa", "#0b1a24"),
    "compute": Colour("other compute", "#009e73", "#25b88e"),
    "comm": Colour("hidden communication", "#f3cf86", "#8c7038", "#3a2a06", "#fff6e0"),
    "exposed": Colour("exposed communication", "#d04a00", "#ff7b33"),
    "memory": Colour("copies, memsets", "#cc79a7", "#dd92bd", "#2a0d1d"),
    "range": Colour("ranges", "#dfe3e8", "#333b46", "#27303a", "#d7dee6"),
    "busy": Colour("compute alone", "#5f6d7c", "#66768a"),
    "idle": Colour("idle", "#eef1f4", "#20262e", "#27303a", "#d7dee6"),
}
"""By kind of op; ``exposed`` is the part of communication that is, ``busy`` any compute with nothing beside it."""
