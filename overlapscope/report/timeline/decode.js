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
  model.lanes = model.lanes.map((lane) => {
    const columns = {};
    for (const key of ["name", "path", "bytes", "exposed_wait_ns", "wait_ns", "match"]) if (lane[key]) columns[key] = column(lane[key]);
    const { rank, label, ranges, row } = lane;
    return { rank, label, ranges, row, ...times(lane, column), ...columns, exposed: NONE };
  });
  model.strips = model.strips.map((strip) => {
    const ops = model.lanes.filter((lane) => lane.rank === strip.rank && !lane.ranges);
    return states(strip.rank, ops, times(strip.extra, column), column(strip.code), model.states);
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
  const gap = column(lane.gap), duration = column(lane.duration), n = gap.length;
  const start = new Float64Array(n), end = new Float64Array(n);
  for (let i = 0, at = lane.first; i < n; i++) {
    start[i] = at += gap[i];
    end[i] = at += duration[i];
  }
  return { n, start, end };
}

const NONE = { n: 0, start: new Float64Array(0), end: new Float64Array(0) };

// A rank's states in order, and the exposed pieces of its lanes, from a code for what follows each edge: states.py.
function states(rank, lanes, extra, code, names) {
  const outside = names.length, exposed = names.indexOf("exposed_comm");
  const edges = [extra, ...lanes].map(ends).reduce(merged);
  const strip = { start: [], end: [], state: [] }, pieces = lanes.map(() => ({ start: [], end: [] }));
  const add = (to, start, end, fresh) => {
    const last = to.end.length - 1;
    if (!fresh && last >= 0 && to.end[last] === start) to.end[last] = end;
    else to.start.push(start), to.end.push(end);
  };
  for (let i = 0; i + 1 < edges.length; i++) {
    if (code[i] === outside) continue;
    const state = code[i] > outside ? exposed : code[i];
    const fresh = strip.state[strip.end.length - 1] !== state;
    add(strip, edges[i], edges[i + 1], fresh);
    if (strip.state.length < strip.end.length) strip.state.push(state);
    if (code[i] > outside) add(pieces[code[i] - outside - 1], edges[i], edges[i + 1], false);
  }
  lanes.forEach((lane, k) => (lane.exposed = packed(pieces[k])));
  return { rank, ...packed(strip), state: Uint8Array.from(strip.state) };
}

function packed({ start, end }) {
  return { n: start.length, start: Float64Array.from(start), end: Float64Array.from(end) };
}

// Starts and ends of a lane's intervals, each once, in order.
function ends({ n, start, end }) {
  const found = new Float64Array(2 * n);
  let size = 0;
  for (let i = 0; i < n; i++) {
    if (!size || found[size - 1] !== start[i]) found[size++] = start[i];
    if (found[size - 1] !== end[i]) found[size++] = end[i];
  }
  return found.subarray(0, size);
}

// Two ascending lists as one, each value once.
function merged(a, b) {
  const found = new Float64Array(a.length + b.length);
  let size = 0;
  for (let i = 0, k = 0; i < a.length || k < b.length; ) {
    const next = k >= b.length || (i < a.length && a[i] <= b[k]) ? a[i++] : b[k++];
    if (!size || found[size - 1] !== next) found[size++] = next;
  }
  return found.subarray(0, size);
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
