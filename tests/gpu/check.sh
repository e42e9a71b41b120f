#!/usr/bin/env bash
# What only a GPU can show, in under eight minutes on one: run it in a checkout, on the machine that has the GPU.
#
#   bash tests/gpu/check.sh [OUT]
#
# OUT (default: $OUT, else gpu-check) gets the runs, the reports and figures.txt. Packages that are missing are
# installed from the folder $WHEELS, where that is set, without a network. Every part is tried, whatever the ones
# before it gave; the exit code is the number of parts that failed.
set -uo pipefail
cd "$(dirname "$0")/../.."

out=${1:-${OUT:-gpu-check}}
mkdir -p "$out"
[ -z "${WHEELS:-}" ] || python3 -m pip install --quiet --no-index --find-links "$WHEELS" \
    nvtx plotly sqlite-utils typer adbc-driver-sqlite pyarrow msgspec
export PYTHONPATH=$PWD
osc=(python3 -m overlapscope)
failed=0

# Run a part under a name; the rest is the command.
part() {
    echo "== $1"
    local began=$SECONDS
    shift
    if "$@"; then echo "-- passed, $((SECONDS - began)) s"; else echo "-- FAILED ($?), $((SECONDS - began)) s"; failed=$((failed + 1)); fi
}

# The command must be refused with exit code 2 and these words.
refused() {
    local words=$1 said code
    shift
    said=$("$@" 2>&1) && code=0 || code=$?
    echo "$said"
    [ "$code" = 2 ] && grep -q -- "$words" <<<"$said"
}

block() { "${osc[@]}" run --workload block --device cuda --preset llama3-8b --tp 1 --steps 5 --recorder torch --force -o "$out/block"; }
report() { "${osc[@]}" report "$out/block" --format json --force -o "$out/block.json" && "${osc[@]}" report "$out/block" --by range; }
# With one rank NCCL carries out these three as copies; of the others there is nothing to carry out.
sweep() { "${osc[@]}" run --workload "$1" --device cuda --tp 1 --sizes 8B:256MB:x8 --recorder torch --force -o "$out/$1"; }

{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    date -u +%Y-%m-%dT%H:%M:%SZ
    part "doctor" "${osc[@]}" doctor
    part "a block of Llama 3 8B, one rank" block
    part "its report" report
    for collective in all-gather reduce-scatter all-to-all; do
        part "$collective, one rank" sweep "$collective"
    done
    part "symm_mem is refused on one rank" refused "symm_mem needs" \
        "${osc[@]}" run --device cuda --tp 1 --sequence-parallel --schedule symm_mem -o "$out/refused"
    part "more ranks than GPUs are refused" refused "GPUs are visible" \
        "${osc[@]}" run --tp 64 --heads 64 --device cuda -o "$out/refused"
    part "the report's compute time beside CUDA events" python3 tests/gpu/events.py "$out/events"
    echo "$failed parts failed"
} 2>&1 | tee "$out/figures.txt"
exit "$(tail -n 1 "$out/figures.txt" | cut -d ' ' -f 1)"
