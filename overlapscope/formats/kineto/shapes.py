"""The sizes that PyTorch records with work: of inputs, and the bytes they make, of kernels' grids and blocks."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...classify import Collective
from ...intervals import Int64
from ...trace import NA
from ..raw import shape_name
from .events import ABSENT, Args, Event, ShapedArgs

__all__ = ["ELEMENT_BYTES", "input_bytes", "input_shapes", "launch_shapes"]

# By the names PyTorch records ("dtype" of a collective, "Input type" of an operator).
ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "c10::half", "c10::bfloat16", "short int"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "long int"), 8),
}

Int32 = npt.NDArray[np.int32]
Size = tuple[int, int, int]

_SIZES = msgspec.json.Decoder(Size)
_APART = b"\0"  # which JSON cannot hold

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


def launch_shapes(args: list[Args]) -> tuple[Int32, list[str]]:
    """The code of each kernel's grid and block, -1 where they are no lists of three, and the names of the codes."""
    grid, grids = _distinct([a.grid for a in args])
    block, blocks = _distinct([a.block for a in args])
    pair, pairs = pd.factorize(grid << 32 | block)
    codes: dict[str, int] = {}
    code_of = np.full(len(pairs), -1, np.int32)
    for i, key in enumerate(pairs.tolist()):
        g, b = grids[key >> 32], blocks[key & 0xFFFFFFFF]
        if g is not None and b is not None:
            code_of[i] = codes.setdefault(shape_name(g, b), len(codes))
    return code_of[pair], list(codes)


def _distinct(texts: list[msgspec.Raw]) -> tuple[Int64, list[Size | None]]:
    """The code of each text, and the sizes that the codes stand for, None for what is no list of three."""
    # One text, split and coded by Arrow, as a Python object each would take longer than their decoding.
    parts = pc.split_pattern(pa.array([_APART.join(texts)], pa.large_binary()), _APART).values
    coded = parts.dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), [_size(text) for text in coded.dictionary.to_pylist()]


def _size(text: bytes) -> Size | None:
    try:
        return _SIZES.decode(text)
    except msgspec.DecodeError:
        return None


def input_shapes(operators: list[Event]) -> tuple[list[int], list[str]]:
    """The code of each operator's recorded input dimensions, -1 where there are none, and what the codes stand for.

    They are kept as they stand in the file.
    """
    texts = [_dims(event) for event in operators]
    codes = {text: code for code, text in enumerate(t for t in dict.fromkeys(texts) if t is not None)}
    return [-1 if text is None else codes[text] for text in texts], list(codes)


def _dims(event: Event) -> str | None:
    args = event.args
    if not isinstance(args, ShapedArgs) or args.input_dims is ABSENT:
        return None
    return bytes(args.input_dims).decode("utf-8", "replace")
