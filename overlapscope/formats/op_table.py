"""The table of ops of all files: on one axis of ranks, lanes, names and shapes, sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Classifier, Collective, Kind, Verdict
from ..intervals import Int64
from ..trace import (
    LANE_COLUMNS,
    NA,
    collectives,
    kinds,
)
from .ranks import RankOf
from .raw import FROM_NAME, RawTrace

__all__ = ["Int32", "Ops", "build", "communicators", "refine_collectives"]

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]

KIND_CODE = {kind: code for code, kind in enumerate(Kind)}
COLLECTIVE_CODE = {collective: code for code, collective in enumerate(Collective)}

# A kernel's name tells these only vaguely (NCCL runs all-to-all as send/recv); what the program recorded wins.
VAGUE = [COLLECTIVE_CODE[Collective.OTHER], COLLECTIVE_CODE[Collective.SEND_RECV]]


@dataclass(slots=True)
class Ops:
    """Columns of `Trace.ops`, the codes of their tables in place of words."""

    start: Int64
    end: Int64
    rank: Int32
    lane: Int32
    name: Int32
    kind: Int8
    collective: Int8
    launch: Int64
    thread: Int64
    bytes: Int64
    group: Int32
    communicator: Int32
    sequence: Int32
    shape: Int32

    def frame(self) -> pd.DataFrame:
        columns = {column: getattr(self, column) for column in self.__slots__}
        columns["kind"] = kinds(self.kind)
        columns["collective"] = collectives(self.collective)
        return pd.DataFrame(columns, copy=False)


def build(
    files: Sequence[RawTrace],
    rank_of: RankOf,
    name_of: list[Int32],
    shape_of: list[Int32],
    verdicts: list[Verdict],
) -> tuple[Ops, pd.DataFrame]:
    """The ops of all files by (rank, start), and their lanes.

    `rank_of`, `name_of` and `shape_of` are the numbers that ranks, names and shapes have over all files.
    """

    def joined(column: str) -> npt.NDArray:  # type: ignore[type-arg]
        return _concatenated([getattr(file.ops, column) for file in files])

    rank = np.concatenate(
        [
            np.array([rank_of[f, u] for u in range(len(file.units))], np.int32)[file.ops.unit]
            for f, file in enumerate(files)
        ]
    )
    name = np.concatenate([name_of[f][file.ops.name] for f, file in enumerate(files)])
    numbers = communicators(files)
    communicator = _concatenated(
        [
            _recoded(
                np.array([*(numbers[n] for n in file.communicators), -1], np.int32), file.ops.communicator
            )
            for file in files
        ]
    )
    shape = _concatenated([_recoded(shape_of[f], file.ops.shape) for f, file in enumerate(files)])
    lane, lanes = _lanes(files, rank_of, joined("stream"))
    order = _order(rank, joined("start"))

    def sorted_(values: npt.NDArray) -> npt.NDArray:  # type: ignore[type-arg]
        if order is None or _unknown(values):  # in any order
            return values
        return values[order]

    name = sorted_(name)
    kind_of = np.array([KIND_CODE[v.kind or Kind.COMPUTE] for v in verdicts], np.int8)
    collective_of = np.array(
        [-1 if v.collective is None else COLLECTIVE_CODE[v.collective] for v in verdicts], np.int8
    )
    collective = collective_of[name]
    recorded = sorted_(joined("collective"))
    told = (recorded != FROM_NAME) & (collective >= 0)
    collective[told] = recorded[told]
    ops = Ops(
        start=sorted_(joined("start")),
        end=sorted_(joined("end")),
        rank=sorted_(rank),
        lane=sorted_(lane),
        name=name,
        kind=kind_of[name],
        collective=collective,
        launch=sorted_(joined("launch")),
        thread=sorted_(joined("thread")),
        bytes=sorted_(joined("bytes")),
        group=sorted_(joined("group")),
        communicator=sorted_(communicator),
        sequence=sorted_(joined("sequence")),
        shape=sorted_(shape),
    )
    return ops, lanes


def _unknown(values: npt.NDArray) -> bool:  # type: ignore[type-arg]
    """Whether it is a column of which nothing is known: it takes no memory, and should not begin to."""
    return not any(values.strides)


def _recoded(code_of: Int32, codes: Int32) -> Int32:
    return np.broadcast_to(code_of[codes[0]], len(codes)) if _unknown(codes) else code_of[codes]


def _concatenated(parts: list[npt.NDArray]) -> npt.NDArray:  # type: ignore[type-arg]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def communicators(files: Sequence[RawTrace]) -> dict[str, int]:
    """The communicators of all files, numbered by what names them."""
    return {name: i for i, name in enumerate(dict.fromkeys(n for file in files for n in file.communicators))}


def _order(rank: Int32, start: Int64) -> Int64 | None:
    """Positions that sort by (rank, start), or None where nothing is to be done."""
    if bool(np.all((rank[1:] > rank[:-1]) | ((rank[1:] == rank[:-1]) & (start[1:] >= start[:-1])))):
        return None
    by_start = None if bool(np.all(start[1:] >= start[:-1])) else np.argsort(start, kind="stable")
    # numpy sorts 16-bit keys by radix, in linear time; a rank beyond that is not seen in practice.
    narrow = rank.astype(np.int16) if rank.max() < np.iinfo(np.int16).max else rank
    if by_start is None:
        return np.argsort(narrow, kind="stable")
    return by_start[np.argsort(narrow[by_start], kind="stable")]


def _lanes(files: Sequence[RawTrace], rank_of: RankOf, stream: npt.NDArray) -> tuple[Int32, pd.DataFrame]:  # type: ignore[type-arg]
    """Number the lanes by (rank, device, stream), so that a lower lane is a lower stream."""
    owners: dict[tuple[int, int], int] = {}
    owner = [
        np.array(
            [
                owners.setdefault((rank_of[f, u], NA if unit.device is None else unit.device), len(owners))
                for u, unit in enumerate(file.units)
            ],
            np.int64,
        )[file.ops.unit]
        for f, file in enumerate(files)
    ]
    code, codes = pd.factorize((np.concatenate(owner) << 32) | (stream.astype(np.int64) & 0xFFFFFFFF))
    rank, device = np.array(list(owners), np.int64)[codes >> 32].T
    table = pd.DataFrame({"rank": rank, "device": device, "stream": codes & 0xFFFFFFFF})
    order = np.lexsort((table["stream"], table["device"], table["rank"]))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    table = table.iloc[order].reset_index(drop=True)
    word = "thread" if files[0].lanes == "host" else "stream"
    table["label"] = [f"{word} {s}" for s in table["stream"]]
    return place[code], table[list(LANE_COLUMNS)]


def refine_collectives(
    ops: Ops, ranges: pd.DataFrame, verdicts: list[Verdict], classifier: Classifier
) -> None:
    """Where a kernel's name is vague, take the collective of the annotation it was launched in."""
    vague = np.flatnonzero(np.isin(ops.collective, VAGUE) & (ops.launch != NA))
    if not len(vague) or not len(ranges):
        return
    meaning = {
        name: COLLECTIVE_CODE[found]
        for name in ranges["name"].cat.categories
        # PyTorch's emit_nvtx adds to a name: "nccl:all_to_all, op_id = 990760".
        if (found := classifier.annotation(name.split(",", 1)[0])) is not None
        and COLLECTIVE_CODE[found] not in VAGUE
    }
    if not meaning:
        return
    telling = ranges[ranges["name"].isin(list(meaning)) & (ranges["end"] != NA)]
    for (rank, thread), group in telling.groupby(["rank", "thread"]):
        here = vague[(ops.rank[vague] == rank) & (ops.thread[vague] == thread)]
        start, end = group["start"].to_numpy(), group["end"].to_numpy()
        at = np.searchsorted(start, ops.launch[here], side="right") - 1
        inside = (at >= 0) & (ops.launch[here] < end[at])
        code = np.array([meaning[n] for n in group["name"]], np.int8)
        ops.collective[here[inside]] = code[at[inside]]
