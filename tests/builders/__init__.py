"""A small language in which tests write traces, and two back ends that write them as real tools do.

Independent of the product: nothing here imports it, so that a test compares two witnesses. Every time is an
int in ns since the session start. The worked example of the metrics reads::

    t = TraceBuilder()
    g = t.process(pid=4242, rank=0).device(0)
    g.kernel("ampere_bf16_s16816gemm_bf16_128x128_nn", 0, 40, stream=7)
    g.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 30, 60, stream=20)
    g.memcpy("HtoD", 60, 65, stream=9)
    nsys.write(t, tmp_path / "t.sqlite", style="3.25")
    kineto.write(t.rank(0), tmp_path / "rank0.json.gz")

What a program does on the host belongs to the process (`range`, `mark`, `sync`, `call`, `op`, `nccl`), what
its GPU does to a device of it (`kernel`, `memcpy`, `memset`, `graph`). A GPU op without `launch` has no
launch record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .model import COPY_KINDS, SYNC_KINDS, Annotation, Call, Collective, HostOp, Nccl, Op, Range, Sync

__all__ = [
    "COPY_KINDS",
    "SYNC_KINDS",
    "Annotation",
    "Call",
    "Collective",
    "Device",
    "HostOp",
    "Nccl",
    "Op",
    "Overhead",
    "Process",
    "Range",
    "Sync",
    "TraceBuilder",
    "short_name",
]

_SYNC_CALLS = {
    "event": "cudaEventSynchronize",
    "stream_wait": "cudaStreamWaitEvent",
    "stream": "cudaStreamSynchronize",
    "context": "cudaDeviceSynchronize",
}


@dataclass(frozen=True)
class Overhead:
    """Time that the profiler itself took."""

    start: int
    end: int
    process: Process
    thread: int
    name: str
    cupti: int | None  # CUPTI's overhead type, None where nsys itself recorded it


@dataclass(eq=False)
class TraceBuilder:
    """A whole capture. `epoch` is the wall clock of time 0, ns since 1970."""

    epoch: int = 1_711_968_000_000_000_000
    processes: list[Process] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)

    def process(
        self,
        pid: int,
        rank: int | None = None,
        *,
        world: int | None = None,
        backend: str = "nccl",
        name: str = "python",
        hardware: int = 0,
        vm: int = 1,
    ) -> Process:
        """A process; `rank` and `world` are recorded only where a back end can."""
        self.processes.append(Process(self, pid, rank, world, backend, name, hardware, vm))
        return self.processes[-1]

    def rank(self, rank: int) -> Process:
        """The process with that rank."""
        (found,) = [p for p in self.processes if p.rank == rank]
        return found

    def overhead(
        self,
        start: int,
        end: int,
        *,
        process: Process | None = None,
        thread: int | None = None,
        name: str = "CUDA profiling data flush overhead",
        cupti: int | None = None,
    ) -> None:
        """Profiler overhead; with `cupti` (3 buffer flush, 8 command buffer full) in CUPTI's own table."""
        owner = process or self.processes[0]
        self.overheads.append(Overhead(start, end, owner, owner.thread(thread), name, cupti))


@dataclass(eq=False)
class Process:
    """One process and what it does on the host. Its main thread is the default one, its id is the pid."""

    trace: TraceBuilder
    pid: int
    rank: int | None
    world: int | None
    backend: str
    name: str
    hardware: int
    vm: int
    devices: list[Device] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    host_ops: list[HostOp] = field(default_factory=list)
    _correlation: int = 0

    def device(self, index: int, name: str = "NVIDIA H100 80GB HBM3", *, gpu: int | None = None) -> Device:
        """A GPU of this process; `index` is its CUDA id here, `gpu` the machine's number for it."""
        self.devices.append(Device(self, index, name, index if gpu is None else gpu))
        return self.devices[-1]

    def range(
        self,
        name: str,
        start: int,
        end: int | None,
        *,
        thread: int | None = None,
        domain: str | None = None,
        category: str | None = None,
        kind: str = "push_pop",
        end_thread: int | None = None,
        payload: int | float | Nccl | None = None,
        registered: bool = False,
    ) -> None:
        """An NVTX range (`kind` push_pop or start_end); `end` None was never closed."""
        tid = self.thread(thread)
        self.ranges.append(
            Range(name, start, end, tid, domain, category, kind, end_thread, payload, registered)
        )

    def mark(
        self,
        name: str,
        at: int,
        *,
        thread: int | None = None,
        domain: str | None = None,
        category: str | None = None,
        payload: int | float | None = None,
    ) -> None:
        """An NVTX mark: an instant."""
        tid = self.thread(thread)
        self.ranges.append(Range(name, at, None, tid, domain, category, "mark", None, payload, False))

    def nccl(self, call: str, start: int, end: int, payload: Nccl, *, thread: int | None = None) -> None:
        """A range of NCCL's own NVTX (`call` is ncclAllReduce, ncclCommInitRankConfig, ...)."""
        self.range(call, start, end, thread=thread, domain="NCCL", payload=payload, registered=True)

    def sync(
        self,
        kind: str,
        start: int,
        end: int,
        *,
        device: int = 0,
        stream: int | None = None,
        thread: int | None = None,
    ) -> None:
        """A wait (see SYNC_KINDS) and the host call that waits."""
        call = self.call(_SYNC_CALLS[kind], start, end, thread=thread)
        self.syncs.append(Sync(kind, start, end, device, stream, call))

    def call(self, name: str, start: int, end: int, *, thread: int | None = None) -> Call:
        """A CUDA call that launches nothing."""
        self.calls.append(Call(name, start, end, self.thread(thread), self.correlate()))
        return self.calls[-1]

    def op(
        self,
        name: str,
        start: int,
        end: int,
        *,
        thread: int | None = None,
        dims: Sequence[Sequence[int]] | None = None,
        dtype: str = "float",
    ) -> None:
        """An operator on a CPU thread, such as aten::mm or gloo:all_reduce."""
        self.host_ops.append(HostOp(name, start, end, self.thread(thread), dims, dtype))

    def threads(self) -> list[int]:
        """Every thread that did something, the main one among them."""
        calls = [o.launch for d in self.devices for o in d.ops if o.launch] + self.calls
        used = {c.thread for c in calls} | {o.thread for o in self.host_ops}
        return sorted({self.pid} | used | {r.thread for r in self.ranges})

    def thread(self, thread: int | None) -> int:
        """The thread's id as it is recorded."""
        return self.pid if thread is None else thread

    def correlate(self) -> int:
        """The next correlation id. Each process counts from 1, so that ids of two processes collide."""
        self._correlation += 1
        return self._correlation


@dataclass(eq=False)
class Device:
    """A GPU as one process sees it."""

    process: Process
    index: int
    name: str
    gpu: int
    ops: list[Op] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        *,
        stream: int,
        short: str | None = None,
        launch: tuple[int, int] | None = None,
        thread: int | None = None,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (128, 1, 1),
        graph_node: int | None = None,
        collective: Collective | None = None,
    ) -> None:
        """A kernel by its demangled name. `launch` is the start and end of the host call, on `thread`."""
        call, correlation = self._launch("cudaLaunchKernel", launch, thread)
        head = ("kernel", name, short or short_name(name), start, end, self.index, stream, correlation, call)
        self.ops.append(Op(*head, grid=grid, block=block, graph_node=graph_node, collective=collective))

    def memcpy(
        self,
        copy: str,
        start: int,
        end: int,
        *,
        stream: int,
        nbytes: int = 1024,
        src: int | None = None,
        dst: int | None = None,
        host: str = "Pageable",
        launch: tuple[int, int] | None = None,
        thread: int | None = None,
    ) -> None:
        """A copy (see COPY_KINDS); a PtoP copy goes from device `src` to device `dst`."""
        call, correlation = self._launch("cudaMemcpyAsync", launch, thread)
        head = ("memcpy", "", "", start, end, self.index, stream, correlation, call)
        self.ops.append(Op(*head, nbytes=nbytes, copy=copy, host=host, src=src, dst=dst))

    def memset(
        self,
        start: int,
        end: int,
        *,
        stream: int,
        nbytes: int = 1024,
        launch: tuple[int, int] | None = None,
        thread: int | None = None,
    ) -> None:
        """A memset of device memory."""
        call, correlation = self._launch("cudaMemsetAsync", launch, thread)
        head = ("memset", "", "", start, end, self.index, stream, correlation, call)
        self.ops.append(Op(*head, nbytes=nbytes))

    def graph(
        self,
        start: int,
        end: int,
        *,
        stream: int,
        launch: tuple[int, int] | None = None,
        thread: int | None = None,
    ) -> None:
        """A replay of a CUDA graph traced as a whole: one row, its kernels unseen."""
        call, correlation = self._launch("cudaGraphLaunch", launch, thread)
        self.ops.append(Op("graph", "", "", start, end, self.index, stream, correlation, call))

    def annotation(self, name: str, start: int, end: int, *, stream: int) -> None:
        """A range projected on a stream. Only PyTorch's profiler writes such; nsys has none."""
        self.annotations.append(Annotation(name, start, end, self.index, stream))

    def _launch(
        self, name: str, launch: tuple[int, int] | None, thread: int | None
    ) -> tuple[Call | None, int]:
        correlation = self.process.correlate()
        if launch is None:
            return None, correlation
        return Call(name, *launch, self.process.thread(thread), correlation), correlation


def short_name(name: str) -> str:
    """The bare function name in a demangled one: no return type, namespaces, template or call arguments."""
    text = re.sub(r"\(anonymous namespace\)|<unnamed>", "unnamed", name)
    while (shorter := re.sub(r"<[^<>()]*>|\([^<>()]*\)|\[[^\[\]]*\]", "", text)) != text:
        text = shorter
    return re.split(r"[\s:]+", text.strip())[-1]
