// The timeline in an element: Plotly has the axis and what dragging does, the canvas below it draws what is in view.
// `bytes` is a payload. Options: plotly, a function that gives Plotly or a promise of it, called when the canvas is
// painted, since Plotly takes long to start; link: keep the view in the page's address; height: px at most; dark: a
// function that says whether the page is, null where the browser's own setting says it; viewed(t0, t1), told a moment
// after the view has changed, in whole ns; picked(lane, op), told what was pinned, as positions, null where nothing is.
//
// What `mount` promises has `show`, `reset` and `unmount`. A page may have several: each hears the keys that are pressed
// in it or, where nothing has the focus, under the pointer.

const LEAST = 20;  // ns in view at the closest
const PAUSE = 200;  // ms without a change after which a view is told

async function mount(root, bytes, options = {}) {
  const model = decode(await inflate(bytes));
  const timeline = new Timeline(root, model, options);
  timeline.resize();
  timeline.follow();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  if (options.plotly && !timeline.gone) {
    const plotly = await options.plotly();
    if (!timeline.gone) await timeline.axis.start(plotly, timeline.view);
  }
  return timeline;
}

class Timeline {
  constructor(root, model, options) {
    Object.assign(this, { root, model, options });
    this.media = window.matchMedia("(prefers-color-scheme: dark)");
    this.ending = new AbortController();  // of every listener beyond what the root holds
    this.view = { t0: model.start, t1: model.end };
    this.marks = {};
    this.build();
    this.painter = new Painter(this.canvas, this.over, model);
    this.finder = new Finder(this.painter);
    this.axis = new Axis(this.plot, model, (t0, t1) => this.follows(t0, t1), () => this.reset());
    this.theme();
    this.listen();
    // More than fits: the states of all ranks, and the first one's lanes to show what there is.
    const ranks = model.ranks.map((one) => one.rank);
    if (ranks.length > 2 && this.painter.height > window.innerHeight) this.painter.fold(new Set(ranks.slice(1)));
  }

  build() {
    const { model } = this, act = (what) => () => what.call(this);
    this.canvas = h("canvas", { role: "img", "aria-label": `Timeline of ${model.ranks.length} ranks; the table below has its figures` });
    this.over = h("canvas", { "aria-hidden": "true" });
    this.plot = h("div", { class: "plot" });
    this.tip = h("div", { class: "tip", role: "status", hidden: true });
    this.stage = h("div", { class: "stage" }, this.canvas, this.over, this.plot);
    this.spacer = h("div", { class: "spacer" }, this.stage);
    this.body = h("div", { class: "body", tabindex: "0", role: "application", "aria-label": "Timeline; press ? for its keys" }, this.spacer);
    this.field = h("input", { type: "search", placeholder: "Search names", "aria-label": "Search names of ops and ranges", autocomplete: "off", spellcheck: "false" });
    this.hits = h("output", { class: "hits", "aria-live": "polite" });
    this.measured = h("section", { class: "measured", hidden: true, "aria-live": "polite", "aria-label": "Measured span" });
    this.dialog = help();
    this.drag = button("Drag: zoom", "Whether dragging zooms or moves", act(this.switchDrag));
    const tools = h("div", { class: "tools", role: "toolbar", "aria-label": "View" },
      button("−", "Zoom out (s)", act(() => this.zoom(1.6))), button("+", "Zoom in (w)", act(() => this.zoom(1 / 1.6))),
      button("←", "Left (a)", act(() => this.pan(-0.3))), button("→", "Right (d)", act(() => this.pan(0.3))),
      button("All", "The whole timeline (0)", act(this.reset)),
      button("Measure", "Measure what is in view (m); Shift-drag measures a span", act(this.measureView)),
      this.drag, button("Fold", "Fold all ranks to their states, unfold them (c)", act(this.foldAll)),
      button("Picture", "Save a picture (PNG)", act(this.picture)), button("?", "Keys and mouse", act(this.help)),
      h("span", { class: "search", role: "search" }, this.field,
        button("↑", "The one before (N)", () => this.step(-1)), button("↓", "The next one (n)", () => this.step(1)), this.hits));
    this.legend = legend(model, (which, shown) => {
      this.painter.shown[which] = shown;
      this.redraw();
    });
    this.root.replaceChildren(opening(model), tools, this.legend, this.body, this.tip, this.measured, ...below(model), this.dialog);
  }

  get gone() {
    return this.ending.signal.aborted;
  }

  // Leave nothing behind: no listener, no observer, nothing of Plotly's.
  unmount() {
    if (this.gone) return;
    this.ending.abort();
    this.observer.disconnect();
    clearTimeout(this.telling);
    this.axis.end();
    this.root.replaceChildren();
  }

  // -- the view ------------------------------------------------------------------------------------------------

  resize() {
    const wide = this.body.clientWidth, narrow = wide < 640;
    const most = this.options.height || Math.max(360, window.innerHeight - this.body.getBoundingClientRect().top - window.scrollY - 64);
    this.spacer.style.height = `${this.painter.height + AXIS}px`;
    const high = Math.min(this.painter.height + AXIS, most);
    this.body.style.height = `${high}px`;
    for (const { style } of [this.canvas, this.over, this.stage]) [style.width, style.height] = [`${wide}px`, `${high}px`];
    const left = narrow ? 84 : 148;
    Object.assign(this.view, { all: wide, left, width: Math.max(wide - left - RIGHT, 40), top: AXIS, height: high, scroll: this.body.scrollTop });
    this.axis.set({ width: wide, height: high, "margin.l": left, "xaxis.nticks": narrow ? 4 : 9 });
    this.redraw();
  }

  // Show [t0, t1]; kept inside the timeline.
  show(t0, t1) {
    const { start, end } = this.model, edge = (end - start) * EDGE;
    const wide = Math.min(Math.max(t1 - t0, LEAST), end - start + 2 * edge);
    const first = Math.min(Math.max((t0 + t1 - wide) / 2, start - edge), end + edge - wide);
    this.view.t0 = first;
    this.view.t1 = first + wide;
    this.redraw();
    this.axis.set({ "xaxis.range": range(this.view) });
    this.remember();
  }

  // The axis was dragged.
  follows(t0, t1) {
    Object.assign(this.view, { t0, t1 });
    this.redraw();
    this.remember();
  }

  zoom(factor, at = this.pointer && this.pointer.t) {
    const { t0, t1 } = this.view;
    const t = at !== undefined && at !== null && at > t0 && at < t1 ? at : (t0 + t1) / 2;
    this.show(t - (t - t0) * factor, t + (t1 - t) * factor);
  }

  pan(share) {
    const by = (this.view.t1 - this.view.t0) * share;
    this.show(this.view.t0 + by, this.view.t1 + by);
  }

  reset() {
    this.show(this.model.start, this.model.end);
  }

  switchDrag() {
    const to = this.drag.textContent === "Drag: zoom" ? "pan" : "zoom";
    this.drag.textContent = to === "zoom" ? "Drag: zoom" : "Drag: move";
    this.axis.set({ dragmode: to });
  }

  foldAll() {
    this.fold(this.painter.folded.size ? [] : this.model.ranks.map((one) => one.rank));
  }

  fold(ranks) {
    this.painter.fold(new Set(ranks));
    this.tell(null);
    this.resize();
  }

  redraw() {
    this.stale = true;
    this.remark();
  }

  remark() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => this.gone || this.paint());
  }

  paint() {
    const begun = performance.now();
    this.due = false;
    this.view.scroll = this.body.scrollTop;
    if (this.stale) {
      this.painter.draw(this.view, this.colours, this.finder.isFound);
      this.painted = performance.now() - begun;  // ms, for benchmarks
      this.firstPaint = this.firstPaint || performance.now();
    }
    this.stale = false;
    this.painter.mark(this.marks);
  }

  theme() {
    const said = this.options.dark ? this.options.dark() : null, dark = said === null ? this.media.matches : said;
    this.root.classList.toggle("dark", dark);
    this.colours = palette(this.model, dark);
    for (const [i, key] of CLASSES.entries()) this.root.style.setProperty(`--${key}`, this.colours.fill[i]);
    this.axis.dress(this.colours);
    this.redraw();
  }

  remember() {
    if (!this.options.link && !this.options.viewed) return;
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      const t0 = Math.round(this.view.t0), t1 = Math.round(this.view.t1);
      const whole = t0 <= this.model.start && t1 >= this.model.end;
      if (this.options.link) this.address(whole ? "" : `#${milliseconds(t0)}-${milliseconds(t1)}`);
      if (this.options.viewed) this.options.viewed(...(whole ? [null, null] : [t0, t1]));
    }, PAUSE);
  }

  // -- links: #t0-t1 in ms, exact to the nanosecond ---------------------------------------------------------------

  address(hash) {
    if (window.location.hash !== hash) window.history.replaceState(null, "", hash || window.location.href.split("#")[0]);
  }

  follow() {
    if (!this.options.link) return;
    const found = /^#(-?\d{1,12}(?:\.\d{1,6})?)-(-?\d{1,12}(?:\.\d{1,6})?)$/.exec(window.location.hash);
    if (!found) return;
    const [t0, t1] = found.slice(1).map(nanoseconds);
    if (t1 > t0) this.show(t0, t1);
  }

  // -- mouse and keys ----------------------------------------------------------------------------------------------

  listen() {
    const { body, stage } = this, { signal } = this.ending, capture = { capture: true };
    this.media.addEventListener("change", () => this.theme(), { signal });
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.root);
    window.addEventListener("resize", () => this.resize(), { signal });
    if (this.options.link) window.addEventListener("hashchange", () => this.follow(), { signal });
    body.addEventListener("scroll", () => this.redraw());
    body.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("mousemove", (event) => this.move(event));
    stage.addEventListener("mouseleave", () => this.leave());
    stage.addEventListener("mousedown", (event) => this.press(event), capture);
    stage.addEventListener("pointerdown", (event) => (this.down = [event.clientX, event.clientY]), capture);
    window.addEventListener("pointerup", (event) => this.click(event), { capture: true, signal });  // Plotly lays a cover over all while dragging
    document.addEventListener("keydown", (event) => this.means(event) && this.key(event), { signal });
    this.field.addEventListener("input", () => this.search());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.body.focus();
    });
  }

  // Whether a key is pressed here: in this timeline or, where nothing has the focus, on the page of its own or under
  // the pointer.
  means(event) {
    const [target] = event.composedPath();  // some notebooks put outputs into shadow trees
    if (event.composedPath().includes(this.root)) return true;
    return (target === document.body || target === document.documentElement) && (this.options.link || this.root.matches(":hover"));
  }

  wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.01), this.where(event).t);
    else if (sideways) this.pan(sideways / this.view.width);
    else return;
    event.preventDefault();
  }

  where(event) {
    const box = this.canvas.getBoundingClientRect(), { view } = this;
    const x = event.clientX - box.left, y = event.clientY - box.top;
    return { x, y, t: view.t0 + ((x - view.left) / view.width) * (view.t1 - view.t0) };
  }

  move(event) {
    this.pointer = this.where(event);
    if (this.dragging) return;
    const hit = this.finder.at(this.pointer.x, this.pointer.y);
    if (!this.pinned) this.tell(hit, event);
  }

  leave() {
    this.pointer = null;
    if (!this.pinned) this.tell(null);
  }

  // Show what is known of a hit beside the pointer.
  tell(hit, event) {
    this.marks.hover = hit && !hit.many && hit.row.kind !== "strip" ? hit : null;
    this.marks.same = this.marks.hover ? this.finder.same(hit) : null;
    this.tip.hidden = !hit;
    if (hit) {
      const [title, swatch, lines] = told(this.model, this.finder, hit);
      this.tip.replaceChildren(
        h("p", {}, h("span", { class: `swatch ${swatch}` }), h("bdi", {}, title.length > 700 ? `${title.slice(0, 700)}…` : title)),
        h("dl", {}, ...lines.flatMap(([label, words]) => [h("dt", {}, label), h("dd", {}, h("bdi", {}, words))])),
      );
      this.place(event);
    }
    this.remark();
  }

  place(event) {
    const { tip } = this, gap = 14, room = document.documentElement.clientWidth;
    // What is fixed stands in the window, unless something around it is transformed, as in some notebooks.
    tip.style.left = tip.style.top = "0px";
    const box = tip.getBoundingClientRect();
    const left = event.clientX + gap + box.width > room ? Math.max(4, event.clientX - gap - box.width) : event.clientX + gap;
    const top = event.clientY + gap + box.height > window.innerHeight ? event.clientY - gap - box.height : event.clientY + gap;
    tip.style.left = `${Math.min(left, Math.max(4, room - box.width - 4)) - box.left}px`;
    tip.style.top = `${Math.max(4, top) - box.top}px`;
  }

  // A press and release in one place pins what is there.
  click(event) {
    const { down } = this;
    this.down = null;
    if (!down || Math.hypot(event.clientX - down[0], event.clientY - down[1]) > 4 || event.shiftKey) return;
    const { x, y } = this.where(event), hit = this.finder.at(x, y), row = this.finder.rowAt(y);
    if (row && x < this.view.left) {
      const folded = new Set(this.painter.folded);
      if (!folded.delete(row.rank)) folded.add(row.rank);
      this.fold(folded);
      return;
    }
    // Plotly keeps a press to itself, and a notebook gives the focus to its cell when the button goes up.
    setTimeout(() => this.body.focus({ preventScroll: true }));
    this.pin(hit && !hit.many ? hit : null);
    this.tell(hit, event);
  }

  pin(hit) {
    this.pinned = hit;
    this.tip.classList.toggle("pinned", Boolean(hit));
    if (!this.options.picked) return;
    const lane = hit ? this.model.lanes.indexOf(hit.row.lane) : -1;  // a rank's state is in none
    this.options.picked(...(lane < 0 ? [null, null] : [lane, hit.i]));
  }

  // Shift-drag measures; Plotly never sees it.
  press(event) {
    if (!event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    event.stopPropagation();
    const from = this.where(event).t;
    this.dragging = true;
    const drag = (next) => this.measure(from, this.where(next).t);
    const done = (next) => {
      this.dragging = false;
      window.removeEventListener("mousemove", drag);
      drag(next);
    };
    window.addEventListener("mousemove", drag);
    window.addEventListener("mouseup", done, { once: true });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.composedPath()[0].matches("input, textarea, select") || this.dialog.open) return;
    const keys = {
      w: () => this.zoom(1 / 1.4), s: () => this.zoom(1.4), a: () => this.pan(-0.2), d: () => this.pan(0.2),
      0: this.reset, Home: this.reset, m: this.measureView, c: this.foldAll, f: this.fit, "/": () => this.field.focus(),
      n: () => this.step(1), N: () => this.step(-1), "?": this.help, Escape: this.forget,
    };
    const act = keys[event.key] || keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act.call(this);
  }

  help() {
    this.dialog.showModal();
  }

  forget() {
    this.pin(null);
    this.marks = {};
    this.measured.hidden = true;
    this.tell(null);
  }

  // -- a measured span ---------------------------------------------------------------------------------------------

  measureView() {
    this.measure(Math.max(this.view.t0, this.model.start), Math.min(this.view.t1, this.model.end));
  }

  measure(from, to) {
    const t0 = Math.round(Math.min(from, to)), t1 = Math.round(Math.max(from, to));
    if (t1 <= t0) return;
    this.marks.span = [t0, t1];
    const rows = this.finder.span(t0, t1), sum = (key) => rows.reduce((all, row) => all + row[key], 0);
    const comm = sum("comm_ns"), hidden = sum("overlap_ns"), exposed = sum("exposed_comm_ns");
    const words = comm
      ? `${percent(hidden, comm)} of the communication in it is hidden; ${duration(exposed / rows.length)} a rank is exposed.`
      : "No communication in it.";
    this.measured.replaceChildren(
      h("p", {}, h("strong", { "data-ns": t1 - t0 }, duration(t1 - t0)), ` from ${milliseconds(t0)} to ${milliseconds(t1)} ms. ${words} `,
        button("Zoom to it", "Zoom to the span", () => this.show(t0, t1)), button("×", "Forget the span (Esc)", () => this.forget())),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Figures of the span" }, figures(rows, "What lies in the span", "in windows")),
    );
    this.measured.hidden = false;
    this.remark();
  }

  // -- search ------------------------------------------------------------------------------------------------------

  search() {
    const n = this.finder.search(this.field.value.trim());
    this.marks.found = null;
    this.hits.textContent = this.finder.isFound ? (n ? `${decimals(n, 0)} found` : "none") : "";
    this.redraw();
  }

  step(by) {
    if (!this.finder.isFound || !this.finder.count) return;
    const one = (this.marks.found = this.finder.next(this.marks.found, by));
    this.hits.textContent = `${decimals(this.finder.place(one), 0)} of ${decimals(this.finder.count, 0)}`;
    this.bring(one);
  }

  // Bring an op into view, wide enough to be seen.
  bring({ row: { lane, rank }, i }) {
    if (!this.painter.rowOf.has(lane)) this.fold([...this.painter.folded].filter((one) => one !== rank));
    const row = this.painter.rowOf.get(lane);
    const start = row.lane.start[i], end = row.lane.end[i], middle = (start + end) / 2;
    const wide = Math.min(this.view.t1 - this.view.t0, Math.max((end - start) * (this.view.width / 6), LEAST));
    const y = row.top - this.body.scrollTop;
    if (y < 0 || y + row.height > this.view.height - AXIS) this.body.scrollTop = row.top - (this.view.height - AXIS) / 2;
    this.show(middle - Math.max(wide, (end - start) * 1.2) / 2, middle + Math.max(wide, (end - start) * 1.2) / 2);
  }

  fit() {
    const one = this.pinned || this.marks.found;
    if (!one) return;
    const start = one.row.lane.start[one.i], end = one.row.lane.end[one.i], edge = Math.max((end - start) * 0.1, 1);
    this.show(start - edge, end + edge);
  }

  // -- a picture ---------------------------------------------------------------------------------------------------

  // Plotly's own would miss the canvas.
  async picture() {
    const { canvas } = this, ratio = window.devicePixelRatio || 1, all = h("canvas", { width: canvas.width, height: canvas.height });
    const context = all.getContext("2d");
    context.drawImage(canvas, 0, 0);
    context.drawImage(this.over, 0, 0);
    const axis = await this.axis.picture(this.view, ratio);
    if (axis) context.drawImage(axis, 0, 0, all.width, all.height);
    h("a", { download: "timeline.png", href: all.toDataURL("image/png") }).click();
  }
}

// "12.345678" ms as ns, exact.
function nanoseconds(text) {
  const [whole, fraction = ""] = text.replace("-", "").split(".");
  return (text.startsWith("-") ? -1 : 1) * (Number(whole) * 1e6 + Number(fraction.padEnd(6, "0")));
}
