// What stands around the canvas. Everything from a trace goes in as text.

const UNITS = [[1e9, "s", 10], [1e6, "ms", 1], [1e3, "µs", 1]];

// `12.345 ms`, as the report writes it.
function duration(ns) {
  for (const [size, unit, least] of UNITS) if (Math.abs(ns) >= size * least) return `${decimals(ns / size, 3)} ${unit}`;
  return `${decimals(ns, 0)} ns`;
}

function decimals(value, digits) {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function percent(part, whole) {
  if (!whole) return "n/a";
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.05) return "<0.1 %";
  if (share >= 99.95 && share < 100) return ">99.9 %";
  return `${decimals(share, 1)} %`;
}

function size(bytes) {
  for (const [unit, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (bytes >= unit) return `${decimals(bytes / unit, 1)} ${name}`;
  }
  return `${decimals(bytes, 0)} B`;
}

// An element: attributes that start with "on" are listeners; children are elements or text.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function button(label, words, act, more) {
  return h("button", { type: "button", "aria-label": words, title: words, onclick: act, ...more }, label);
}

const KEYS = [
  ["w, s", "zoom in, out, around the pointer"],
  ["a, d", "to the left, to the right"],
  ["0, Home", "the whole timeline"],
  ["drag", "zoom to what is marked, or move: as the button Drag says"],
  ["Ctrl + wheel", "zoom around the pointer; Shift + wheel moves"],
  ["Shift + drag", "measure a span"],
  ["m", "measure what is in view"],
  ["f", "fit the op that is pinned"],
  ["click", "pin an op; its collective is outlined on all ranks. On a rank: fold it, unfold it"],
  ["c", "fold all ranks to their states, unfold them"],
  ["/", "search; then Enter, n and N go to the next and the one before"],
  ["Esc", "close, unpin, forget the span"],
  ["?", "this list"],
];

function help() {
  const close = () => dialog.close();
  const dialog = h(
    "dialog",
    { class: "help", "aria-label": "Keys and mouse" },
    h("h2", {}, "Keys and mouse"),
    h("dl", {}, ...KEYS.flatMap(([keys, words]) => [h("dt", {}, keys), h("dd", {}, words)])),
    button("Close", "Close", close),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && close());
  return dialog;
}

function opening(model) {
  const [first, ...rest] = model.headline;
  const [, trace] = model.setting.find(([label]) => label === "trace");
  return h("header", {}, h("p", { class: "trace" }, h("bdi", {}, trace)), h("h1", {}, first), ...(rest.length ? [h("p", { class: "rest" }, rest.join(" "))] : []));
}

// One toggle per class that the timeline has; `toggle(class, shown)`.
function legend(model, toggle) {
  const there = new Set(["idle", "busy"]);
  const kinds = new Set(model.lanes.filter((lane) => !lane.ranges).flatMap((lane) => [...new Set(lane.name)]));
  for (const name of kinds) there.add(model.kinds[model.names[name][2]]);
  if (model.lanes.some((lane) => lane.exposed.n)) there.add("exposed");
  if (model.lanes.some((lane) => lane.ranges)) there.add("range");
  const order = ["exposed", "comm", "gemm", "attention", "compute", "memory", "range", "busy", "idle"];
  const items = order.filter((key) => there.has(key)).map((key) => {
    let item = null;
    const flip = () => {
      const shown = item.getAttribute("aria-pressed") !== "true";
      item.setAttribute("aria-pressed", String(shown));
      toggle(CLASSES.indexOf(key), shown);
    };
    return (item = h(
      "button",
      { type: "button", "aria-pressed": "true", "data-class": key, title: "Show or hide", onclick: flip },
      h("span", { class: `swatch ${key}` }),
      model.colours[key][0],
    ));
  });
  return h("div", { class: "legend", role: "group", "aria-label": "Colours; each can be hidden" }, ...items);
}

const COLUMNS = [
  ["window_ns", "window"],
  ["compute_ns", "compute"],
  ["exposed_comm_ns", "exposed comm"],
  ["exposed_memory_ns", "exposed memory"],
  ["idle_ns", "idle"],
  ["comm_ns", "comm"],
];

// Rows of figures, one a rank; every time stands in ns in its data-ns.
function figures(rows, words, head) {
  const longest = Math.max(...rows.map((row) => row.window_ns), 1);
  const [divisor, unit] = UNITS.find(([s, , least]) => longest >= s * least) || [1, "ns"];
  const time = (row, key) => h("td", { "data-figure": key, "data-ns": row[key] }, decimals(row[key] / divisor, divisor > 1 ? 3 : 0));
  return h(
    "table",
    {},
    h("caption", {}, words),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "rank"),
      ...COLUMNS.map(([key, label]) => h("th", { scope: "col" }, key === "window_ns" ? `${head || label} (${unit})` : label)),
      h("th", { scope: "col" }, "comm hidden"))),
    h("tbody", {}, ...rows.map((row) => h("tr", { "data-rank": row.rank }, h("th", { scope: "row" }, String(row.rank)),
      ...COLUMNS.map(([key]) => time(row, key)),
      h("td", { "data-figure": "overlap_ns", "data-ns": row.overlap_ns }, percent(row.overlap_ns, row.comm_ns))))),
  );
}

function below(model) {
  const told = h("dl", { class: "setting" }, ...model.setting.flatMap(([label, words]) => [h("dt", {}, label), h("dd", {}, words)]));
  const parts = [
    h("details", { open: true, class: "figures" }, h("summary", {}, "Figures"),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Figures" },
        figures(model.ranks, "window = compute + exposed comm + exposed memory + idle, to the nanosecond"))),
    h("details", {}, h("summary", {}, "What was captured"), told),
  ];
  if (model.warnings.length) {
    parts.push(h("details", { open: true }, h("summary", {}, "Good to know"), h("ul", {}, ...model.warnings.map((w) => h("li", {}, w)))));
  }
  return parts;
}

// What is said of what lies under the pointer: [title, class of its swatch, [[label, words], ...]].
function told(model, finder, hit) {
  const { row, i, many } = hit, { lane } = row;
  if (row.kind === "strip") return toldState(model, hit);
  const place = `rank ${row.rank} · ${lane.label}${lane.row ? ` (${lane.row + 1})` : ""}`;
  const length = lane.end[i] - lane.start[i];
  if (many) return toldMany(model, hit, place);
  const lines = [["where", place], ["duration", duration(length)], ["start", instant(model, lane.start[i])]];
  if (lane.ranges) return [nameOf(model, lane, i), "range", lines];
  const [, , kind, collective] = model.names[lane.name[i]];
  lines.splice(1, 0, ["kind", model.kinds[kind] + (collective ? `, ${collective}` : "")]);
  let swatch = model.kinds[kind];
  if (kind === COMM) {
    const exposed = finder.exposed(lane, i);
    if (exposed > length / 2) swatch = "exposed";
    lines.push(["exposed", `${duration(exposed)}, ${percent(exposed, length)} of it`]);
    const wait = lane.exposed_wait_ns ? lane.exposed_wait_ns[i] - 1 : -1;
    if (wait >= 0 && exposed > 0) lines.push(["of that", `${duration(wait)} waiting for a late rank, ${duration(exposed - wait)} transfer`]);
    else if (exposed > 0) lines.push(["of that", "waiting and transfer are not told apart"]);
    // Not by the starts: clocks of two files may differ, and Python has brought them together.
    const waits = finder.same(hit).map((one) => [one.row.lane.wait_ns ? one.row.lane.wait_ns[one.i] - 1 : -1, one.row.rank]);
    const last = waits.find(([ns]) => ns === 0);
    if (last && waits.length > 1) lines.push(["last to begin", `rank ${last[1]}, ${duration(Math.max(...waits.map(([ns]) => ns)))} after the first`]);
  }
  const bytes = lane.bytes ? lane.bytes[i] - 1 : -1;
  if (bytes >= 0) lines.push(["bytes", `${size(bytes)} (${decimals(bytes, 0)})`]);
  if (lane.path && lane.path[i] > 0) lines.push(["in", model.paths[lane.path[i] - 1]]);
  return [nameOf(model, lane, i), swatch, lines];
}

function toldMany(model, { row, i, many }, place) {
  const { lane } = row, [from, to] = many, sums = new Map();
  for (let k = from; k < to; k++) {
    const key = lane.ranges ? "range" : model.kinds[model.names[lane.name[k]][2]];
    sums.set(key, (sums.get(key) || 0) + lane.end[k] - lane.start[k]);
  }
  const all = [...sums.values()].reduce((a, b) => a + b, 0);
  const shares = [...sums].sort((a, b) => b[1] - a[1]);
  const lines = [
    ["where", place],
    ...(lane.ranges ? [] : [["of them", shares.map(([key, sum]) => `${percent(sum, all)} ${key}`).join(", ")]]),
    ["longest", `${nameOf(model, lane, i, true)}, ${duration(lane.end[i] - lane.start[i])}`],
  ];
  return [`${decimals(to - from, 0)} ${lane.ranges ? "ranges" : "ops"} in this pixel`, shares[0][0], lines];
}

const STATE_WORDS = {
  compute: "computing, nothing beside it",
  overlapped: "communication hidden under compute",
  exposed_comm: "exposed communication",
  exposed_memory: "exposed copies",
  idle: "idle",
};

function toldState(model, { row, i, many }) {
  const { lane } = row;
  if (!many) {
    const lines = [["where", `rank ${row.rank}`], ["for", duration(lane.end[i] - lane.start[i])], ["start", instant(model, lane.start[i])]];
    return [STATE_WORDS[model.states[lane.state[i]]], CLASSES[OF_STATE[lane.state[i]]], lines];
  }
  const sums = model.states.map(() => 0);
  for (let k = many[0]; k < many[1]; k++) sums[lane.state[k]] += lane.end[k] - lane.start[k];
  const all = sums.reduce((a, b) => a + b, 0);
  const most = sums.indexOf(Math.max(...sums));
  const lines = model.states.map((state, k) => [STATE_WORDS[state], percent(sums[k], all)]).filter((_, k) => sums[k]);
  return [`rank ${row.rank}, around here`, CLASSES[OF_STATE[most]], lines];
}

// A time as the axis counts it, to the nanosecond.
function instant(model, t) {
  return `${milliseconds(t)} ms`;
}

// ns as ms with all six decimals, exact.
function milliseconds(ns) {
  const rest = Math.abs(ns) % 1e6, whole = (Math.abs(ns) - rest) / 1e6;
  return `${ns < 0 ? "-" : ""}${whole}.${String(rest).padStart(6, "0")}`;
}
