"""What the link between the ranks of a trace can carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import OptionError

if TYPE_CHECKING:
    from ..analysis.rates import Peak
    from ..trace import Trace

__all__ = ["peak_of"]


def peak_of(trace: Trace, link: str | None = None) -> Peak | None:
    """The link that is given; else that which the run pretended to have; else that of the GPUs, by their name.

    Raises
    ------
    OptionError
        The link given is none.
    """
    from ..analysis.rates import Peak
    from ..capture import own

    Link, ConfigError = own.workloads().Link, own.workloads().ConfigError
    if link is not None:
        try:
            gbs = Link.parse(link).beta / 1e9
        except ConfigError as error:
            raise OptionError(error.what, error.remedy, "--link") from None
        return Peak(gbs, f"{gbs:,.12g} GB/s each way, as --link says")
    if trace.provenance.link is None:
        return _of_gpus(trace)
    try:
        gbs = Link.parse(trace.provenance.link).beta / 1e9
    except ConfigError:  # another program's words
        return None
    return Peak(gbs, f"{gbs:,.12g} GB/s each way: the link was paced")


def _of_gpus(trace: Trace) -> Peak | None:
    """Where all have one name that is known, what joins them inside a node."""
    from ..analysis.rates import Peak
    from ..capture import own
    from ..predict.gpus import by_name

    names = trace.ranks["gpu"].unique().tolist()
    gpu = by_name(names[0]) if len(names) == 1 and isinstance(names[0], str) else None
    if gpu is None:
        return None
    gbs = own.workloads().Link.parse(gpu.link).beta / 1e9
    title = gpu.link.replace("nvlink", "NVLink ")
    how = f"{gbs:,.12g} GB/s each way: {title} of {names[0]}, inside a node (if it is another, give --link)"
    return Peak(gbs, how, within_node=True)
