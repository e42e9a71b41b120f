"""The sizes of a sweep: what is read, what is refused, what ranks make of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import WORKLOADS, ConfigError
from workloads.config import DTYPES
from workloads.sizes import MOST, AllReduceConfig, CollectiveConfig, parse

SWEEPS = [name for name, entry in WORKLOADS.items() if issubclass(entry.config, CollectiveConfig)]
MANY = st.integers(1, 10**9)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8", [8]),
        ("8B", [8]),
        ("1KB", [1000]),
        ("1KiB", [1024]),
        ("1K", [1024]),
        ("3mb", [3_000_000]),
        ("2 GiB", [2 << 30]),
        ("1MB,1KB,1000", [1000, 1_000_000]),
        ("8B:64B:x2", [8, 16, 32, 64]),
        ("8:100:x4", [8, 32, 100]),
        ("1MB:4MB:+1MB", [1_000_000, 2_000_000, 3_000_000, 4_000_000]),
        ("1KB:1KB:x2", [1000]),
        ("8B:32B:x2,1MB, 16B", [8, 16, 32, 1_000_000]),
    ],
)
def test_what_is_read(text: str, sizes: list[int]) -> None:
    assert parse(text) == sizes


def test_a_sweep_of_nccl_tests_has_its_sizes() -> None:
    """``-b 8 -e 256M -f 2``: from 8 B doubling up to 2^28."""
    assert parse("8:256M:x2") == [1 << k for k in range(3, 29)]


def test_a_decimal_end_is_reached_as_it_was_asked_for() -> None:
    assert parse("8B:256MB:x2") == [*(1 << k for k in range(3, 28)), 256_000_000]


EXAMPLE = "give such as 8B:256MB:x2, 1MB:8MB:+1MB or 1KB,1MB"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "sizes: '0' is nothing to send; give 1 B or more"),
        ("0B:8B:x2", "sizes: '0B' is nothing to send; give 1 B or more"),
        ("1MB:1KB:x2", "sizes: 1MB:1KB runs backwards; give 1KB:1MB"),
        ("8B:1MB:x1", "sizes: x1 does not grow; give x2 or more"),
        ("8B:1MB:x0", "sizes: x0 does not grow; give x2 or more"),
        ("8B:1MB:+0", "sizes: '0' is nothing to send; give 1 B or more"),
        ("8B:1MB:2", "sizes: cannot read the step '2'; give a factor, x2, or a size, +1MB"),
        ("8B:1MB:x1.5", "sizes: cannot read the step 'x1.5'; give a factor, x2, or a size, +1MB"),
        ("8B:1MB:x²", "sizes: cannot read the step 'x²'; give a factor, x2, or a size, +1MB"),
        ("-8", f"sizes: cannot read '-8'; {EXAMPLE}"),
        ("", f"sizes: cannot read ''; {EXAMPLE}"),
        ("8B,", f"sizes: cannot read '8B,'; {EXAMPLE}"),
        ("8B:1MB", f"sizes: cannot read '8B:1MB'; {EXAMPLE}"),
        ("1.5MB", f"sizes: cannot read '1.5MB'; {EXAMPLE}"),
        ("8TB", "sizes: 'TB' is no unit; there are B, KB, MB, GB and KiB, MiB, GiB"),
        ("8B:1MB:+8B", "sizes: '8B:1MB:+8B' is more than 64 sizes; take larger steps"),
        (
            "1:999999999999999GB:+1B",
            "sizes: '1:999999999999999GB:+1B' is more than 64 sizes; take larger steps",
        ),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value) == message


@given(MANY, MANY, st.integers(2, 100))
def test_every_size_is_the_factor_times_the_one_before_up_to_the_end(one: int, other: int, by: int) -> None:
    first, last = sorted((one, other))
    sizes = parse(f"{first}:{last}:x{by}")
    assert (sizes[0], sizes[-1]) == (first, last)
    assert all(b == a * by for a, b in pairwise(sizes[:-1]))
    assert first == last or sizes[-2] < last <= sizes[-2] * by


@given(st.text("0123456789BKMGi:x+, ", max_size=20))
def test_whatever_is_given_is_read_or_refused(text: str) -> None:
    try:
        sizes = parse(text)
    except ConfigError:
        return
    assert 1 <= len(sizes) <= MOST
    assert sizes == sorted(set(sizes))
    assert sizes[0] > 0


@given(
    st.sampled_from(SWEEPS),
    st.sampled_from(sorted(DTYPES)),
    st.integers(1, 72),
    st.lists(MANY, min_size=1, max_size=5),
)
def test_sizes_are_whole_elements_for_every_rank(
    workload: str, dtype: str, tp: int, asked: list[int]
) -> None:
    config = WORKLOADS[workload].configure("cuda", dtype=dtype, sizes=",".join(map(str, asked)))
    assert isinstance(config, CollectiveConfig)
    unit = DTYPES[dtype] * (tp if workload in ("all-gather", "reduce-scatter", "all-to-all") else 1)
    sizes = config.bytes(tp)
    assert all(size % unit == 0 and size > 0 for size in sizes)
    for size in asked:  # the nearest below, unless that is nothing
        assert max(size - size % unit, unit) in sizes
    assert bool(config.notes(tp)) == any(size % unit for size in asked)
    whole = sizes[-1]
    assert config.buffers(whole, tp) == {
        "all-gather": (whole // tp, whole),
        "reduce-scatter": (whole, whole // tp),
    }.get(workload, (whole, whole))


def test_rounding_is_told() -> None:
    config = WORKLOADS["all-gather"].configure("cpu", sizes="8B,1KB,1KiB")
    assert isinstance(config, CollectiveConfig)
    assert config.bytes(3) == [12, 996, 1020]
    assert config.notes(3) == [
        "3 of 3 sizes were rounded to whole multiples of 12 B, one float32 for each of 3 ranks"
    ]


@pytest.mark.parametrize(
    ("sizes", "kept", "said"),
    [
        ("1B,12B", [12], "; 1 became equal to another and is left out"),
        ("1B:16B:+1B", [12], "; 15 became equal to another and are left out"),
        ("1B,24B", [12, 24], ""),
    ],
)
def test_sizes_that_rounding_makes_equal_are_told(sizes: str, kept: list[int], said: str) -> None:
    config = WORKLOADS["all-gather"].configure("cpu", sizes=sizes)
    assert isinstance(config, CollectiveConfig)
    assert config.bytes(3) == kept
    (note,) = config.notes(3)
    assert note.endswith(f" of 12 B, one float32 for each of 3 ranks{said}")


@pytest.mark.parametrize(
    ("workload", "options", "tp", "message"),
    [
        ("all-reduce", {}, 1, "tp: 1 rank has nobody to exchange with; give 2 or more"),
        ("all-reduce", {"sizes": "x"}, 2, f"sizes: cannot read 'x'; {EXAMPLE}"),
        ("all-reduce", {"dtype": "int8"}, 2, "dtype: 'int8' is not known; choose from float64, "),
    ],
)
def test_what_ranks_cannot_do(workload: str, options: dict[str, Any], tp: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WORKLOADS[workload].configure("cpu", **options).check(tp, "cpu")
    assert str(caught.value).startswith(message)


def test_one_rank_copies_with_nccl_unless_in_place_or_to_itself() -> None:
    for name in ("all-gather", "reduce-scatter", "all-to-all"):
        WORKLOADS[name].configure("cuda").check(1, "cuda")
    for name in ("all-reduce", "send-recv"):
        with pytest.raises(ConfigError, match="tp: 1 rank has nobody to exchange with"):
            WORKLOADS[name].configure("cuda").check(1, "cuda")


def test_options_of_other_workloads_are_refused() -> None:
    with pytest.raises(ConfigError, match="sizes: is not an option of block"):
        WORKLOADS["block"].configure("cpu", sizes="8B")
    with pytest.raises(ConfigError, match="hidden: is not an option of all-reduce"):
        WORKLOADS["all-reduce"].configure("cpu", hidden=8)


def test_memory_is_the_buffers_and_what_checks_them() -> None:
    whole = 4 << 20
    assert AllReduceConfig(sizes="4MiB").memory(2, "cuda") == whole + whole * 5 // 4
    gather = WORKLOADS["all-gather"].configure("cuda", sizes="4MiB")
    assert gather.memory(4, "cuda") == whole // 4 + whole + whole * 5 // 4
    scatter = WORKLOADS["reduce-scatter"].configure("cpu", sizes="4MiB")
    assert scatter.memory(4, "cpu") == whole + whole // 4 + whole
