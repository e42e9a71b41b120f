// What a report's page does beyond being read: tables sort and filter, the tree folds, charts and the timeline are
// drawn when they come into view. Without it every table is whole and in order.

const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
// What a filter looks at: the row's name and its other words, no figures.
const words = (tr) => [...tr.cells].filter((cell, i) => !i || !("value" in cell.dataset)).map((cell) => cell.textContent).join(" ").toLowerCase();
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// -- rows: each knows those below it, which a plain table has none of ---------------------------------------------

class Rows {
  constructor(table) {
    this.table = table;
    this.body = table.tBodies[0];
    const tree = table.classList.contains("tree");
    this.top = { below: [], open: true, whole: !tree };
    const around = [this.top];
    this.all = [...this.body.rows].map((tr, place) => {
      const depth = Number(tr.dataset.depth || 0);
      const row = { tr, place, depth, below: [], open: "open" in tr.dataset, brief: "brief" in tr.dataset, whole: false, text: words(tr) };
      around.length = Math.min(around.length, depth + 1);
      row.around = around[around.length - 1];
      row.around.below.push(row);
      around.push(row);
      return row;
    });
    this.sorted = null;
    this.words = "";
    if ("sort" in table.dataset) this.heads();
    if ("filter" in table.dataset) this.box();
    if (tree) this.folds();
    this.show();
  }

  // -- sorting: a tree inside its parents, what has no value last

  heads() {
    this.head = [...this.table.tHead.rows[0].cells];
    for (const [column, th] of this.head.entries()) {
      if ("unsorted" in th.dataset) continue;
      const button = make("button", { type: "button" }, ...th.childNodes);
      th.replaceChildren(button);
      button.addEventListener("click", () => this.sort(column));
    }
  }

  sort(column) {
    const numbers = this.all.some((row) => "value" in row.tr.cells[column].dataset);
    const order = numbers ? ["descending", "ascending", null] : ["ascending", "descending", null];
    const next = this.sorted && this.sorted[0] === column ? order[order.indexOf(this.sorted[1]) + 1] : order[0];
    this.sorted = next ? [column, next] : null;
    for (const th of this.head) th.removeAttribute("aria-sort");
    if (next) this.head[column].setAttribute("aria-sort", next);
    const sign = next === "descending" ? -1 : 1;
    const key = (row) => {
      const cell = row.tr.cells[column];
      return numbers ? ("value" in cell.dataset ? Number(cell.dataset.value) : null) : cell.textContent;
    };
    const compare = (a, b) => {
      if (!next) return a.place - b.place;
      const x = key(a), y = key(b);
      if (x === null || y === null) return (x === null) - (y === null) || a.place - b.place;
      return sign * (numbers ? x - y : x.localeCompare(y, undefined, { numeric: true })) || a.place - b.place;
    };
    const laid = [];
    const lay = (row) => {
      for (const one of row.below.sort(compare)) {
        laid.push(one.tr);
        lay(one);
      }
    };
    lay(this.top);
    this.body.append(...laid);
  }

  // -- filtering: a row stays that has the words, and those around it

  box() {
    const name = this.table.caption.textContent;
    const field = this.field = make("input", { type: "search", placeholder: "Filter", "aria-label": `Filter: ${name}`, autocomplete: "off", spellcheck: "false" });
    this.found = make("output", { "aria-live": "polite" });
    field.addEventListener("input", () => {
      this.words = field.value.trim().toLowerCase();
      this.show();
    });
    this.table.parentElement.before(make("div", { class: "filter" }, field, this.found));
  }

  folds() {
    for (const row of this.all.filter((one) => one.below.length)) {
      row.button = make("button", { type: "button", class: "fold", "aria-label": `Ranges in ${row.tr.cells[0].textContent}` });
      row.tr.cells[0].prepend(row.button);
      row.button.addEventListener("click", () => {
        row.open = !row.open;
        row.whole = row.whole || row.open;  // who opens it wants all that is in it
        this.show();
      });
    }
    this.rest = make("button", { type: "button", class: "rest-of-it" }, `Show all ${this.all.length.toLocaleString("en")} ranges`);
    this.rest.addEventListener("click", () => {
      for (const row of [this.top, ...this.all]) row.whole = true;
      this.show();
    });
    this.table.parentElement.after(this.rest);
  }

  // Of a tree only what exposes most is there at first, until one asks for the rest.
  kept(row) {
    for (let up = row.around; ; row = up, up = up.around) {
      if (!up.open || !(up.whole || row.brief)) return false;
      if (up === this.top) return true;
    }
  }

  show() {
    const fold = this.table.classList.contains("tree") && !this.words;
    let n = 0;
    const seen = (row) => {
      let some = false;
      for (const one of row.below) some = seen(one) || some;
      if (row === this.top) return some;
      const hit = !this.words || row.text.includes(this.words);
      n += hit;
      row.tr.hidden = fold ? !this.kept(row) : !(hit || some);
      if (row.button) row.button.setAttribute("aria-expanded", String(!fold || row.open));
      return hit || some;
    };
    seen(this.top);
    if (this.rest) this.rest.hidden = !fold || [this.top, ...this.all].every((row) => row.whole || row.below.every((one) => one.brief));
    if (this.found) this.found.textContent = this.words ? `${n.toLocaleString("en")} of ${this.all.length.toLocaleString("en")}` : "";
  }

  // Unfold what is around a row, which no filter may hide.
  reveal(id) {
    if (this.field) this.field.value = this.words = "";
    const row = this.all.find((one) => one.tr.id === id);
    for (let up = row && row.around; up && up !== this.top; up = up.around) up.open = up.whole = true;
    if (row) this.top.whole = true;
    this.show();
  }
}

const tables = all("table").map((table) => new Rows(table));

function named(hash) {
  try {
    return document.getElementById(decodeURIComponent(hash.slice(1)));
  } catch {
    return null;  // a lone %: no name of ours
  }
}

function follow() {
  const target = named(location.hash);
  if (!target || target.tagName !== "TR") return;
  for (const table of tables) if (table.table.contains(target)) table.reveal(target.id);
  target.tabIndex = -1;
  target.focus({ preventScroll: true });
  target.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", follow);
for (const link of all('a[href^="#"]')) {
  link.addEventListener("click", () => { if (link.hash === location.hash) follow(); });  // which is no change
}
follow();

// -- charts: Plotly's, in the page's colours ----------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)"), paper = matchMedia("print");
const PAPER = 660;  // px of A4 between its margins
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// A figure is drawn for a white page: each colour in it stands for a meaning, which has another on a dark one.
function dressed(value) {
  if (typeof value === "string") {
    const meant = Object.keys(LIGHT).find((key) => LIGHT[key] === value);
    return meant ? style(meant) : value;
  }
  if (Array.isArray(value)) return value.map(dressed);
  return value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, dressed(v)])) : value;
}

class Chart {
  constructor(element) {
    this.element = element;
    this.figure = JSON.parse(new TextDecoder().decode(overlapscopePage.bytes(element.dataset.chart)));
  }

  async draw() {
    this.plotly = await overlapscopePage.plotly();
    await this.redraw();
    const again = () => this.redraw();
    for (const media of [dark, paper]) media.addEventListener("change", again);
    new ResizeObserver(again).observe(this.element);
  }

  redraw() {
    const wide = paper.matches ? PAPER : this.element.clientWidth, ink = style("ink");
    if (wide === this.wide && ink === this.ink) return null;
    Object.assign(this, { wide, ink });
    const { data, layout } = dressed(this.figure), narrow = wide < 640;
    if (narrow && layout.xaxis2) stacked(layout);
    const high = parseFloat(this.element.style.height);
    const axis = { gridcolor: style("line"), linecolor: style("line"), zerolinecolor: style("line"), tickfont: { color: style("muted") } };
    for (const key of Object.keys(layout)) if (/^[xy]axis/.test(key)) layout[key] = { ...layout[key], ...axis, automargin: true };
    for (const one of layout.annotations || []) one.font = { ...one.font, color: ink };
    Object.assign(layout, {
      title: undefined, width: wide, height: high, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
      margin: { l: narrow ? 48 : 64, r: 12, t: layout.xaxis2 ? 64 : 30, b: 60 },
      legend: { ...layout.legend, orientation: "h", y: layout.xaxis2 ? 1.1 : 1.02, yanchor: "bottom", x: 0 },
      hoverlabel: { bgcolor: style("page"), font: { color: ink } },
      modebar: { remove: ["lasso2d", "select2d"] },
    });
    return this.plotly.react(this.element, data, layout, { displaylogo: false, displayModeBar: false, responsive: false });
  }
}

// Two plots beside one another are one above the other on a phone.
function stacked(layout) {
  layout.xaxis.domain = layout.xaxis2.domain = [0, 1];
  layout.yaxis.domain = [0.66, 1];
  layout.yaxis2.domain = [0, 0.37];
  for (const [i, one] of (layout.annotations || []).entries()) Object.assign(one, { x: 0.5, y: i ? 0.38 : 1 });
}

// -- drawn when it comes into view --------------------------------------------------------------------------------

function lazily(element, draw) {
  const near = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    near.disconnect();
    draw();
  }, { rootMargin: "300px" });
  near.observe(element);
  return draw;
}

for (const element of all("[data-chart]")) {
  lazily(element, () => new Chart(element).draw().catch((error) => element.append(`The chart cannot be drawn by this browser (${error.message}).`)));
}

const place = document.getElementById("timeline");
if (place) {
  const { bytes, plotly } = overlapscopePage;
  lazily(place, () => {
    const height = Math.max(360, Math.round(innerHeight * 0.72));
    window.timeline = overlapscopeTimeline.mount(place, bytes("payload"), { plotly, height });
    window.timeline.then(() => (place.style.minHeight = "0"));
    window.timeline.catch((error) => place.append(`The timeline cannot be drawn by this browser (${error.message}).`));
  });
}
