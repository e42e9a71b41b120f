"""Markers against real recorders: torch.profiler, and an NVTX tool that this test builds (as nsys is one)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from overlapscope import markers

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
from overlapscope import markers
markers.rank(1, 4)
with markers.warmup(0):
    pass
with markers.step(3):
    with markers.range("attn.qkv", role="sharded"):
        pass
    with markers.range("reduce", role="comm", bytes=4096):
        pass
    with markers.range("plain"):
        pass
"""

CROSSING = """
from overlapscope import markers
markers.link("50 GB/s, 5 us")
with markers.range("outer"):
    first = markers.start("first", role="comm", bytes=64)
    second = markers.start("second", role="comm", bytes=32)
    first.end()
second.end()
"""

# The binary interface of NVTX 3 that every tool implements: it is given a table of the functions that programs
# call, and puts its own there.
TOOL = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    int64_t payload;
    int32_t message_type;
    const char *message;
} Attributes;

typedef void (*Function)(void);
typedef struct {
    size_t size;
    int (*table)(int module, Function ***functions, unsigned *count);
} Callbacks;

static char *names[64];
static FILE *out;

static const char *create(const char *name) { return strdup(name); }
static const char *registered(const char *domain, const char *string) { return strdup(string); }
static void category(const char *domain, uint32_t id, const char *name) { names[id] = strdup(name); }
static int push(const char *domain, const Attributes *a) {
    fprintf(out, "push|%s|%s|%s|%lld\n", domain, a->message, a->category ? names[a->category] : "",
            a->payload_type ? (long long)a->payload : -1);
    return 0;
}
static uint64_t start(const char *domain, const Attributes *a) {
    static uint64_t id;
    fprintf(out, "start %d|%s|%s|%s|%lld\n", (int)++id, domain, a->message, a->category ? names[a->category] : "",
            a->payload_type ? (long long)a->payload : -1);
    return id;
}
static void end(const char *domain, uint64_t id) { fprintf(out, "end %d|%s\n", (int)id, domain); fflush(out); }
static int pop(const char *domain) { fprintf(out, "pop|%s\n", domain); fflush(out); return 0; }

int InitializeInjectionNvtx2(const void *(*exported)(uint32_t)) {
    Function **functions;
    unsigned count;
    const Callbacks *callbacks = exported(1);
    out = fopen(getenv("NVTX_CALLS"), "w");
    callbacks->table(5, &functions, &count);
    *functions[2] = (Function)start;
    *functions[3] = (Function)end;
    *functions[4] = (Function)push;
    *functions[5] = (Function)pop;
    *functions[8] = (Function)category;
    *functions[10] = (Function)registered;
    *functions[12] = (Function)create;
    return 1;
}
"""


# A tool that knows of extensions to NVTX, but not of the one by which it is asked whether it wants a domain: nsys
# 2022.4 is one.
DEAF = r"""
int InitializeInjectionNvtxExtension(void *module) { return 0; }
"""


def python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=[True, False], ids=["deaf", "asked"])
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("tool")
    (folder / "tool.c").write_text(TOOL + DEAF * request.param)
    library = folder / "libtool.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "tool.c")], check=True)
    return library


def test_a_deaf_tool_gets_nothing_from_the_nvtx_package_alone(
    tool: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Else the other tests with it would show nothing."""
    if tuple(map(int, metadata.version("nvtx").split("."))) < (0, 2, 12):
        pytest.skip("this nvtx does not ask")
    code = "import nvtx; print(hasattr(nvtx.get_domain('overlapscope'), 'handle'))"
    said = python(code, NVTX_INJECTION64_PATH=str(tool), NVTX_CALLS=str(tmp_path / "calls"))
    assert said == f"{'[deaf]' not in request.node.name}\n"


def profiled(path: Path) -> tuple[list[str], dict[str, Any]]:
    """The annotations of a profile in the order of their start, and what stands under our key."""
    data = json.loads(path.read_text())
    spans = [e for e in data["traceEvents"] if e.get("cat") == "user_annotation" and e["ph"] == "X"]
    return [e["name"] for e in sorted(spans, key=lambda e: (e["ts"], -e["dur"]))], data[markers.DOMAIN]


def test_an_nvtx_tool_gets_domain_name_role_and_bytes(tool: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    python(PROGRAM, NVTX_INJECTION64_PATH=str(tool), NVTX_CALLS=str(calls))
    assert calls.read_text().splitlines() == [
        "push|overlapscope|rank 1 of 4|rank|-1",
        "pop|overlapscope",
        "push|overlapscope|warmup 0|warmup|-1",
        "pop|overlapscope",
        "push|overlapscope|step 3|step|-1",
        "push|overlapscope|attn.qkv|sharded|-1",
        "pop|overlapscope",
        "push|overlapscope|reduce|comm|4096",
        "pop|overlapscope",
        "push|overlapscope|plain||-1",
        "pop|overlapscope",
        "pop|overlapscope",
    ]


def test_ranges_that_do_not_nest_reach_an_nvtx_tool(tool: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    python(CROSSING, NVTX_INJECTION64_PATH=str(tool), NVTX_CALLS=str(calls))
    assert calls.read_text().splitlines() == [
        "push|overlapscope|link 50 GB/s, 5 us|link|-1",
        "pop|overlapscope",
        "push|overlapscope|outer||-1",
        "start 1|overlapscope|first|comm|64",
        "start 2|overlapscope|second|comm|32",
        "end 1|overlapscope",
        "pop|overlapscope",
        "end 2|overlapscope",
    ]


def test_ranges_that_do_not_nest_are_profiled_from_start_to_end(tmp_path: Path) -> None:
    code = f"""
import torch
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
{"".join("    " + line + chr(10) for line in CROSSING.splitlines())}
p.export_chrome_trace({str(tmp_path / "profile.json")!r})
"""
    python(code)
    names, data = profiled(tmp_path / "profile.json")
    assert names == ["link 50 GB/s, 5 us", "outer", "first", "second"]
    assert data == {"roles": {"link 50 GB/s, 5 us": "link", "first": "comm", "second": "comm"}}
    events = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    at = {e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "user_annotation"}
    assert at["outer"][0] < at["first"][0] < at["second"][0]
    assert at["first"][1] < at["outer"][1] < at["second"][1]


def test_a_profile_gets_the_names_and_beside_them_the_roles(tmp_path: Path) -> None:
    profile = "import torch; p = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]); "
    twice = f"""
{profile}
p.start()
{PROGRAM}
p.stop(); p.export_chrome_trace({str(tmp_path / "first.json")!r})
{profile}
p.start()
with markers.step(4): pass
p.stop(); p.export_chrome_trace({str(tmp_path / "second.json")!r})
"""
    python(twice)
    names, data = profiled(tmp_path / "first.json")
    assert names == ["rank 1 of 4", "warmup 0", "step 3", "attn.qkv", "reduce", "plain"]
    roles = {
        "rank 1 of 4": "rank",
        "warmup 0": "warmup",
        "step 3": "step",
        "attn.qkv": "sharded",
        "reduce": "comm",
    }
    assert data == {"roles": roles}
    # A profiler forgets between sessions; the roles are there all the same.
    names, data = profiled(tmp_path / "second.json")
    assert names == ["step 4"]
    assert data == {"roles": {**roles, "step 4": "step"}}


def test_importing_markers_imports_neither_torch_nor_nvtx() -> None:
    out = python("import sys; from overlapscope import markers; print({'torch', 'nvtx'} & set(sys.modules))")
    assert out == "set()\n"


def test_a_program_without_torch_and_nvtx_runs() -> None:
    without = "import sys; sys.modules['torch'] = sys.modules['nvtx'] = None\n"
    assert python(f"{without}{PROGRAM}\nprint('done')") == "done\n"


def test_a_range_decorates_and_lets_errors_through() -> None:
    @markers.range("fact", role="layer")
    def fact(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return n * fact(n - 1) if n else 1

    assert fact(5) == 120
    assert fact.__name__ == "fact"
    with pytest.raises(ValueError, match="-1"):
        fact(-1)


def test_a_range_costs_next_to_nothing_when_nothing_records() -> None:
    def once() -> float:
        began = time.perf_counter()
        for _ in range(1000):
            with markers.range("x", role="sharded"):
                pass
        return (time.perf_counter() - began) / 1000

    # 1 µs was measured; a kernel launch takes 5.
    assert min(once() for _ in range(20)) < 5e-6
