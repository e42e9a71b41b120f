"""What the tables of an Nsight Systems export look like, by schema version.

A column is ``name[:TYPE][!][*][@RANGE]``: INTEGER unless a type is given, ``!`` NOT NULL, ``*`` primary key.
``@3.13`` means from schema 3.13 on, ``@<3`` before schema 3; a table may carry a range too. Taken from real
exports of 2.9, 3.13, 3.16, 3.17, 3.24, 3.25 and 3.27; 3.0 from an export made with nsys 2022.4.2 itself.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STYLES", "Column", "Style", "enums", "tables"]

Version = tuple[int, int]


@dataclass(frozen=True)
class Style:
    """One version of the schema, and of the nsys that wrote it."""

    version: Version
    schema: str
    product: str
    eager: bool = False  # every table exists, also the empty ones


STYLES: dict[str, Style] = {
    "2.9": Style((2, 9), "2.9.1", "2022.2.1.31", eager=True),
    "3.0": Style((3, 0), "3.0.0", "2022.4.2.1"),
    "3.13": Style((3, 13), "3.13.2", "2024.5.1.113"),
    "3.16": Style((3, 16), "3.16.1", "2024.6.2.25"),
    "3.17": Style((3, 17), "3.17.2", "2025.1.3.140"),
    "3.24": Style((3, 24), "3.24.0", "2025.5.2.266"),
    "3.25": Style((3, 25), "3.25.0", "2026.2.1.210"),
    "3.27": Style((3, 27), "3.27.0", "2026.3.1.157"),
}


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    not_null: bool
    key: bool

    @property
    def ddl(self) -> str:
        return f'"{self.name}" {self.type}{" NOT NULL" * self.not_null}{" PRIMARY KEY" * self.key}'


_PLACE = "deviceId! contextId! greenContextId@3.13 streamId! correlationId globalPid"

_TABLES = {
    "StringIds": "id!* value:TEXT!",
    "ThreadNames": "nameId! priority globalTid",
    "ANALYSIS_FILE@3.13<3.16": "id!* filename:TEXT! content:TEXT! globalPid!",
    "ANALYSIS_FILE@3.16": "id!* filename:TEXT contentId globalPid!",
    "ProcessStreams": "globalPid! filenameId! contentId!",
    "TARGET_INFO_SYSTEM_ENV": (
        "globalVid!@<3.13 globalVid@3.13 devStateName:TEXT! name:TEXT! nameEnum! value:TEXT!"
    ),
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:TEXT localTime:TEXT systemClockNs@3.25",
    "ANALYSIS_DETAILS": "globalVid! duration! startTime! stopTime!",
    "TARGET_INFO_GPU": (
        "vmId! id! name:TEXT busLocation:TEXT isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate "
        "smCount pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath:TEXT ctrlDevPath:TEXT revision "
        "nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin "
        "maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm "
        "maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ "
        "computeMajor computeMinor smMajor smMinor"
    ),
    "TARGET_INFO_CUDA_DEVICE@3.17": "gpuId cudaId! pid! uuid:TEXT@3.25 numMultiprocessors@3.25",
    "TARGET_INFO_CUDA_CONTEXT_INFO@3.13": (
        "nullStreamId! hwId! vmId! processId! deviceId! contextId! parentContextId isGreenContext "
        "numMultiprocessors@3.25 numTpcs@3.25 tpcMask:TEXT@3.25 workqueueResourceId@3.25 "
        "workqueueConcurrencyLimit@3.25 workqueueSharingScope@3.25"
    ),
    "TARGET_INFO_CUDA_NULL_STREAM@<3.13": "streamId! hwId! vmId! processId! deviceId! contextId!",
    "TARGET_INFO_CUDA_STREAM": "streamId! hwId! vmId! processId! contextId! priority! flag!",
    "EXPORT_META_DATA@<3.13": "name:TEXT! value:TEXT",
    "META_DATA_CAPTURE@3.13": "name:TEXT! value:TEXT",
    "META_DATA_EXPORT@3.13": "name:TEXT! value:TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"start! end! {_PLACE} demangledName! shortName! mangledName launchType cacheConfig "
        "registersPerThread! gridX! gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! "
        "dynamicSharedMemory! localMemoryPerThread! localMemoryTotal! gridId! sharedMemoryExecuted "
        "graphNodeId sharedMemoryLimitConfig qmdBulkReleaseDone@3.24 qmdPreexitDone@3.24 qmdLastCtaDone@3.24 "
        "graphId@3.24 clusterX@3.24 clusterY@3.24 clusterZ@3.24 clusterSchedulingPolicy@3.24 "
        "maxPotentialClusterSize@3.24 maxActiveClusters@3.24 sharedMemoryRequestedPercentage@3.25 "
        "tensorSizeMinusOneElements:TEXT!@3.25"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"start! end! {_PLACE} bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId "
        "dstDeviceId dstContextId migrationCause graphNodeId virtualAddress name:TEXT@<3 copyCount@3.17"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"start! end! {_PLACE} value! bytes! graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        f"start! end! {_PLACE} deprecatedSyncType@3.17 syncType! eventId! eventSyncId@3.17"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT@<3.13": f"{_PLACE} eventId!",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT@3.17": f"timestamp@3.24 {_PLACE} eventId! eventSyncId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId name:TEXT@<3"
    ),
    "CUPTI_ACTIVITY_KIND_OVERHEAD@3.24": (
        "start! end! eventClass! globalTid correlationId nameId overheadType!"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE@3.13": f"start! end! {_PLACE} graphId! graphExecId!",
    "PROFILER_OVERHEAD": "start! end! globalTid nameId! returnValue!@<3.24 overheadType!@3.24",
    "NVTX_EVENTS": (
        "start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId "
        "uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId "
        "jsonText:TEXT binaryData:TEXT@3.16"
    ),
    "NVTX_PAYLOAD_SCHEMAS@3.25": ("domainId schemaId name:TEXT type flags numEntries payloadSize alignTo"),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES@3.25": (
        "domainId! schemaId! idx! flags type name:TEXT description:TEXT arrayOrUnionDetail offset"
    ),
    "PROCESSES": "globalPid pid name:TEXT",
    # Only ever empty here: they stand for the many that an eager export lists without a row.
    "TARGET_INFO_PROCESS@<3.13": "processId! openGlVersion:TEXT! correlationId! nameId!",
    "TARGET_INFO_NVTX_CUDA_DEVICE@<3.13": "name:TEXT! hwId! vmId! deviceId!",
    "CUDNN_EVENTS@<3.13": "start! end! eventClass! globalTid nameId!",
    "CUBLAS_EVENTS@<3.13": "start! end! eventClass! globalTid nameId!",
    "CUDA_GRAPH_EVENTS@<3.13": ("start! end! eventClass! globalTid nameId! graphNodeId! originalGraphNodeId"),
    "OSRT_API@<3.13": "start! end! eventClass! globalTid nameId! returnValue! nestingLevel callchainId!",
    "SCHED_EVENTS@<3.13": "start! cpu! isSchedIn! globalTid",
    "OPENGL_API@<3.13": (
        "start! end! eventClass! globalTid endGlobalTid correlationId endCorrelationId nameId! endNameId "
        "returnValue! frameId contextId gpu display"
    ),
}

_MEMCPY_OPER = (
    "UNKNOWN:Unknown HTOD:Host-to-Device DTOH:Device-to-Host HTOA:Host-to-Array ATOH:Array-to-Host "
    "ATOA:Array-to-Array ATOD:Array-to-Device DTOA:Device-to-Array DTOD:Device-to-Device HTOH:Host-to-Host "
    "PTOP:Peer-to-Peer"
)
_ENUMS: dict[str, tuple[str, str]] = {
    "ENUM_CUDA_MEMCPY_OPER@3.0": ("CUDA_MEMCPY_KIND_", _MEMCPY_OPER),
    "ENUM_CUDA_MEM_KIND@3.0": (
        "CUDA_MEMOPR_MEMORY_KIND_",
        "PAGEABLE:Pageable PINNED:Pinned DEVICE:Device ARRAY:Array MANAGED:Managed",
    ),
    # Misspelt so in nsys 2022.4.
    "ENUM_CUDA_KRENEL_LAUNCH_TYPE@3.0<3.13": ("CUDA_KERNEL_LAUNCH_TYPE_", "UNKNOWN:Unknown REGULAR:Regular"),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE@3.13": ("CUDA_KERNEL_LAUNCH_TYPE_", "UNKNOWN:Unknown REGULAR:Regular"),
    "ENUM_CUPTI_SYNC_TYPE@3.0": (
        "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_",
        "UNKNOWN:Unknown EVENT_SYNCHRONIZE:Event_sync STREAM_WAIT_EVENT:Stream_wait_sync "
        "STREAM_SYNCHRONIZE:Stream_sync CONTEXT_SYNCHRONIZE:Context_sync",
    ),
    "ENUM_CUPTI_OVERHEAD_TYPE@3.24": (
        "OVERHEAD_",
        "UNDEFINED:Undefined UNKNOWN:Unknown DRIVER_COMPILER:Driver_JIT_compiler_(CUDA) "
        "CUPTI_BUFFER_FLUSH:Buffer_flush_(Profiler) CUPTI_INSTRUMENTATION:Instrumentation_(Profiler) "
        "CUPTI_RESOURCE:Resource_creation/destruction_(Profiler) "
        "RUNTIME_TRIGGERED_MODULE_LOADING:Runtime_module_loading_(CUDA) "
        "LAZY_FUNCTION_LOADING:Lazy_function_loading_(CUDA) COMMAND_BUFFER_FULL:Command_buffer_full_(CUDA)",
    ),
}
_ENUM_COLUMNS = "id!* name:TEXT label:TEXT"


def tables(version: Version) -> dict[str, list[Column]]:
    """Every table that an export of this schema version can have, with its columns in their order."""
    found = {}
    for key, columns in _TABLES.items():
        name, _, holds = key.partition("@")
        if _in(holds, version):
            found[name] = _columns(columns, version)
    return found


def enums(version: Version) -> dict[str, tuple[list[Column], list[tuple[int, str, str]]]]:
    """The ENUM tables: columns, and rows (id, name, label)."""
    found = {}
    for key, (prefix, values) in _ENUMS.items():
        name, _, holds = key.partition("@")
        if _in(holds, version):
            pairs = [v.split(":") for v in values.split()]
            rows = [(i, prefix + n, label.replace("_", " ")) for i, (n, label) in enumerate(pairs)]
            found[name] = (_columns(_ENUM_COLUMNS, version), rows)
    return found


def _in(holds: str, version: Version) -> bool:
    """Whether a range such as ``3.13``, ``<3`` or ``3.0<3.13`` holds the version."""
    since, _, before = holds.partition("<")
    return (not since or version >= _version(since)) and (not before or version < _version(before))


def _version(text: str) -> Version:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


def _columns(spec: str, version: Version) -> list[Column]:
    columns = []
    for token in spec.split():
        text, _, holds = token.partition("@")
        if _in(holds, version):
            name, _, type_ = text.rstrip("!*").partition(":")
            columns.append(Column(name, type_ or "INTEGER", "!" in text, "*" in text))
    return columns
