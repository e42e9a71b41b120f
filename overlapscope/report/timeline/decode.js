// A payload as typed arrays. Its form is told in payload.py. Times are ns, integers that float64 holds exactly.

const MAGIC = [0x4f, 0x53, 0x54, 0x4c, 1];

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function decode(buffer) {
  const bytes = new Uint8Array(buffer);
  if (!MAGIC.every((byte, i) => bytes[i] === byte)) throw new Error("this is no timeline, or one of another version");
  const length = new DataView(buffer).getUint32(MAGIC.length, true);
  const base = MAGIC.length + 4 + length;
  const model = JSON.parse(new TextDecoder().decode(bytes.subarray(MAGIC.length + 4, base)));
  const column = ([offset, width, n]) => joined(bytes, base + offset, width, n);
  model.strips = model.strips.map((strip) => ({ rank: strip.rank, ...times(strip, column), state: column(strip.state) }));
  model.lanes = model.lanes.map((lane) => {
    const columns = {};
    for (const key of ["name", "path", "bytes", "exposed_wait_ns", "match"]) if (lane[key]) columns[key] = column(lane[key]);
    const { rank, label, ranges, row } = lane;
    const exposed = lane.exposed ? times(lane.exposed, column) : times(null);
    return { rank, label, ranges, row, ...times(lane, column), ...columns, exposed };
  });
  return model;
}

// Integers of `width` bytes each: all lowest bytes first, then all second ones.
function joined(bytes, from, width, n) {
  const values = width <= 4 ? new Uint32Array(n) : new Float64Array(n);
  for (let place = 0, factor = 1; place < width; place++, factor *= 256) {
    const part = from + place * n;
    for (let i = 0; i < n; i++) values[i] += bytes[part + i] * factor;
  }
  return values;
}

// Intervals from the gap before each and its duration.
function times(lane, column) {
  if (lane === null) return { n: 0, start: new Float64Array(0), end: new Float64Array(0) };
  const gap = column(lane.gap), duration = column(lane.duration), n = gap.length;
  const start = new Float64Array(n), end = new Float64Array(n);
  for (let i = 0, at = lane.first; i < n; i++) {
    start[i] = at += gap[i];
    end[i] = at += duration[i];
  }
  return { n, start, end };
}

// First position whose value is greater than x.
function above(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > x) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Positions [from, to) of the intervals of a lane that meet [t0, t1].
function visible(lane, t0, t1) {
  let from = above(lane.end, t0);
  while (from > 0 && lane.end[from - 1] === t0) from--;  // one without length, at the very edge
  return [from, above(lane.start, t1)];
}

// How much of [t0, t1) the intervals of a lane cover.
function covered(lane, t0, t1) {
  let sum = 0;
  const [from, to] = visible(lane, t0, t1);
  for (let i = from; i < to; i++) sum += Math.max(0, Math.min(lane.end[i], t1) - Math.max(lane.start[i], t0));
  return sum;
}
