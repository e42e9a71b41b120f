"""Bytes from what PyTorch records of an operator's or a collective's inputs."""

from __future__ import annotations

import msgspec
import numpy as np

from ...classify import Collective
from ...trace import NA
from .events import ABSENT, Event, ShapedArgs

__all__ = ["ELEMENT_BYTES", "input_bytes"]

# By the names PyTorch records ("dtype" of a collective, "Input type" of an operator).
ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "c10::half", "c10::bfloat16", "short int"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "long int"), 8),
}

# Collectives whose input is already the whole array; for the others it is a shard of an unknown number.
WHOLE_INPUT = {
    *(Collective.ALL_REDUCE, Collective.BROADCAST, Collective.REDUCE),
    *(Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL),
}


def input_bytes(event: Event, collective: Collective | None) -> int:
    """Bytes of the whole array from the recorded input, NA where that is not the whole array."""
    args = event.args
    if not isinstance(args, ShapedArgs) or collective not in WHOLE_INPUT or args.input_dims is ABSENT:
        return NA
    try:
        dims = msgspec.json.decode(args.input_dims)
        types = msgspec.json.decode(args.input_type)
        sizes = [ELEMENT_BYTES[t.lower()] for t in types]
        return sum(int(np.prod(d, dtype=np.int64)) * size for d, size in zip(dims, sizes, strict=True))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return NA
