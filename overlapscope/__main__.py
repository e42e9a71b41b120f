"""``python -m overlapscope``, and the command ``overlapscope``."""

import sys

__all__ = ["main"]


def main() -> None:
    """As :func:`overlapscope.cli.main`, which handles signals itself; Ctrl-C may come while that is imported."""
    try:
        from .cli import main as command

        command()
    except KeyboardInterrupt:
        print("overlapscope: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
