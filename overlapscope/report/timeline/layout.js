// Where rows lie and what colours mean.

// Classes of rectangles, by position; the first five are kinds of ops.
const CLASSES = ["gemm", "attention", "compute", "comm", "memory", "exposed", "range", "busy", "idle"];
const [COMM, MEMORY, EXPOSED, RANGE, BUSY, IDLE] = [3, 4, 5, 6, 7, 8];
// What a state of a rank looks like: compute, overlapped, exposed_comm, exposed_memory, idle.
const OF_STATE = [BUSY, COMM, EXPOSED, MEMORY, IDLE];
// From the bottom of a column upwards: what is exposed stands on the ground, so that heights compare.
const STACK = [EXPOSED, COMM, 0, 1, 2, MEMORY, RANGE];
const STRIP_STACK = [EXPOSED, MEMORY, COMM, BUSY];

const HEIGHT = { head: 22, strip: 16, range: 15, ops: 24, gap: 10 };
const NARROWEST = 30;  // px of a rectangle that gets its name

// Rows from the top: of each rank a head, its states, and unless it is folded its lanes.
function rows(model, folded) {
  const found = [];
  let top = 0;
  const add = (kind, rank, more) => {
    found.push({ kind, rank, top, height: HEIGHT[kind], ...more });
    top += HEIGHT[kind];
  };
  for (const { rank } of model.ranks) {
    add("head", rank, { steps: model.steps.filter((step) => step[0] === rank) });
    for (const strip of model.strips) if (strip.rank === rank) add("strip", rank, { lane: strip, label: "state" });
    for (const lane of folded.has(rank) ? [] : model.lanes) {
      if (lane.rank === rank) add(lane.ranges ? "range" : "ops", rank, { lane, label: lane.row ? "" : lane.label });
    }
    top += HEIGHT.gap;
  }
  return { rows: found, height: top, rowOf: new Map(found.map((row) => [row.lane, row])) };
}

function palette(model, dark) {
  const colour = {}, text = {};
  for (const [key, [, light, onDark, lightText, darkText]] of Object.entries(model.colours)) {
    colour[key] = dark ? onDark : light;
    text[key] = dark ? darkText : lightText;
  }
  return {
    fill: CLASSES.map((key) => colour[key]),
    text: CLASSES.map((key) => text[key]),
    pixel: CLASSES.map((key) => abgr(colour[key])),
    page: dark ? "#12161b" : "#ffffff",
    wash: dark ? "rgba(18,22,27,.68)" : "rgba(255,255,255,.68)",
    ink: dark ? "#e6ebf0" : "#1b242d",
    warn: dark ? "#ff9a62" : "#b43f00",
    muted: dark ? "#98a4b1" : "#5b6875",
    line: dark ? "rgba(255,255,255,.13)" : "rgba(20,30,40,.11)",
    span: dark ? "rgba(120,170,255,.16)" : "rgba(30,90,200,.10)",
    edge: dark ? "#8db8ff" : "#1c5fc4",
  };
}

function abgr(hex) {
  const n = parseInt(hex.slice(1), 16);
  return (0xff000000 | ((n & 0xff) << 16) | (n & 0xff00) | (n >> 16)) >>> 0;
}

function nameOf(model, lane, i, brief) {
  if (lane.ranges) return model.range_names[lane.name[i]];
  const [name, short] = model.names[lane.name[i]];
  return (brief && short) || name;
}
