"""What several processes of a node have to say is said once, and what one of them has, too."""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from overlapscope.capture import World, voice
from test_join import RUN, ended, lines, mpirun, start

FIRST = World(
    launcher="torchrun",
    rank=4,
    size=8,
    local_rank=0,
    local_size=4,
    node=1,
    address="127.0.0.1",
    port=1,
)
RANKS = [replace(FIRST, rank=4 + local, local_rank=local) for local in range(4)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(voice, "WAIT_S", 0.2)
    return tmp_path


def test_what_all_ranks_share_local_rank_0_says_and_nothing_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice, "WAIT_S", 60.0)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(voice.is_mine, rank, "wrong") for rank in reversed(RANKS)]
    assert [answer.result() for answer in asked] == [False, False, False, True]
    assert list(folder.iterdir()) == []


def test_what_local_rank_0_does_not_have_one_of_the_others_says() -> None:
    assert [voice.is_mine(rank, "wrong") for rank in RANKS[1:]] == [True, False, False]
    assert voice.is_mine(RANKS[1], "something else")


def test_the_same_mistake_is_told_again_in_the_next_launch() -> None:
    """Though nothing but the time tells the launches apart, as where one shell starts all ranks."""
    for _ in range(3):
        assert voice.is_mine(RANKS[2], "wrong")


def test_what_was_said_long_ago_counts_for_nothing_and_goes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert voice.is_mine(RANKS[1], "wrong")
    monkeypatch.setattr(voice, "OLD_S", 0.0)
    assert voice.is_mine(RANKS[2], "wrong")
    assert voice.is_mine(RANKS[2], "something else")
    assert len(list(folder.iterdir())) == 1


def test_where_nothing_can_be_written_everyone_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert all(voice.is_mine(rank, "wrong") for rank in RANKS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tp", "8"], "--tp: 8 ranks, and mpirun started 2; give --tp 2, or leave it out"),
        (["--nonsense"], "No such option: --nonsense"),
    ],
)
def test_a_mistake_of_one_rank_is_told_by_it(tmp_path: Path, options: list[str], message: str) -> None:
    second = mpirun(2, TMPDIR=str(tmp_path))[1]
    done = ended([start([sys.executable, *RUN, *options], tmp_path, **second)])
    (line,) = lines(done)
    assert done[0][0] == 2
    assert line.startswith(f"overlapscope: rank 1: {message}")
