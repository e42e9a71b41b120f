"""``python -m overlapscope``."""

from .cli import main

main()
