// The canvas: rectangles where they can be told apart, else one column a pixel whose parts are shares of its time.

class Painter {
  // Ops are drawn on `canvas`, what is marked on `over`: the pointer moves more often than the view.
  constructor(canvas, over, model) {
    Object.assign(this, { canvas, over, model });
    this.context = canvas.getContext("2d");
    this.folded = new Set();
    this.every = rows(model, this.folded).rows;
    this.fold(this.folded);
    for (const strip of model.strips) strip.which = strip.state.map((state) => OF_STATE[state]);
    for (const lane of model.lanes) {
      lane.which = lane.ranges ? null : Uint8Array.from(lane.name, (name) => model.names[name][2]);
    }
    this.shown = CLASSES.map(() => true);
  }

  fold(ranks) {
    this.folded = ranks;
    Object.assign(this, rows(this.model, ranks));
  }

  // view: t0, t1 (ns), left, width (px of the plot), top (of the plot), height (of all), scroll
  draw(view, colours, isFound) {
    const ratio = (this.ratio = window.devicePixelRatio || 1);
    const { canvas, context } = this;
    const wide = Math.round(view.all * ratio), high = Math.round(view.height * ratio);
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    Object.assign(this, { view: { ...view }, colours, isFound, perNs: view.width / (view.t1 - view.t0) });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.page;
    context.fillRect(0, 0, view.all, view.height);
    context.direction = "ltr";
    context.textBaseline = "middle";
    for (const row of this.rows) {
      const y = view.top + row.top - view.scroll;
      if (y + row.height > view.top && y < view.height) this.row(row, y);
    }
    this.outsideWindows();
    this.boundaries();
    if (isFound) this.allFound();
    context.fillStyle = colours.page;
    context.fillRect(0, 0, view.all, view.top);  // under the axis
    context.fillStyle = colours.muted;
    context.font = "11px system-ui, sans-serif";
    context.fillText("time (ms)", 10, view.top - 12);
  }

  // marks: hover, found, same (ops with their rows), span.
  mark({ hover, same, found, span }) {
    const { over, ratio, view } = this, { width, height } = this.canvas;
    if (over.width !== width || over.height !== height) [over.width, over.height] = [width, height];
    const context = over.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, view.all, view.height);
    context.save();
    context.beginPath();
    context.rect(0, view.top, view.all, view.height);
    context.clip();
    if (span) this.span(context, span);
    for (const one of same || []) this.outline(context, one, 1.5);
    if (found) this.outline(context, found, 2.5);
    if (hover) this.outline(context, hover, 2);
    context.restore();
  }

  x(t) {
    return this.view.left + (t - this.view.t0) * this.perNs;
  }

  clipped(t) {
    return Math.min(Math.max(this.x(t), this.view.left), this.view.left + this.view.width);
  }

  row(row, y) {
    const { context, colours, view } = this;
    if (row.kind === "head") return this.head(row, y);
    context.fillStyle = colours.muted;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    if (row.label) context.fillText(this.short(row.label, view.left - 12), view.left - 8, y + row.height / 2);
    context.textAlign = "left";
    if (row.kind === "strip") return this.strip(row, y + 1, row.height - 3);
    const lane = row.lane, height = row.height - 2;
    const [from, to] = visible(lane, view.t0, view.t1);
    const [first, last] = visible(lane.exposed, view.t0, view.t1);
    if (to - from + last - first > view.width / 3) this.columns(lane, from, to, y, height);
    else this.rectangles(lane, from, to, y, height);
  }

  head(row, y) {
    const { context, colours, view } = this;
    context.strokeStyle = colours.line;
    context.beginPath();
    context.moveTo(0, Math.round(y) + 0.5);
    context.lineTo(view.all, Math.round(y) + 0.5);
    context.stroke();
    context.fillStyle = colours.ink;
    context.font = "600 12px system-ui, sans-serif";
    context.fillText(`${this.folded.has(row.rank) ? "▸" : "▾"} rank ${row.rank}`, 8, y + row.height / 2 + 1);
    context.font = "11px system-ui, sans-serif";
    const room = this.waitedFor(row, y);
    for (const [, name, start, end, warmup] of row.steps) {
      const a = this.clipped(start), b = Math.min(this.clipped(end), room);
      if (b - a < NARROWEST) continue;
      context.fillStyle = warmup ? colours.muted : colours.ink;
      context.fillText(this.short(warmup ? `${name} (warm-up)` : name, b - a - 8), a + 5, y + row.height / 2 + 1);
    }
  }

  // What the other ranks waited for this one, on the right; returns where it begins.
  waitedFor(row, y) {
    const { context, colours, view, model } = this, edge = view.left + view.width;
    const costs = model.ranks.map((one) => one.cost_ns || 0), { cost_ns } = model.ranks.find((one) => one.rank === row.rank);
    if (!cost_ns || view.width < 300) return edge;
    const who = model.ranks.length > 2 ? "the others together" : "the other";
    const words = `${who} waited ${duration(cost_ns)} for it`, wide = context.measureText(words).width;
    const worst = cost_ns === Math.max(...costs);
    context.fillStyle = worst ? colours.warn : colours.muted;
    context.font = `${worst ? "600 " : ""}11px system-ui, sans-serif`;
    context.textAlign = "right";
    context.fillText(words, edge - 2, y + row.height / 2 + 1);
    context.textAlign = "left";
    context.font = "11px system-ui, sans-serif";
    return edge - wide - 24;
  }

  // As much of a text as fits.
  short(text, width) {
    const { context } = this;
    if (text.length > 400) text = text.slice(0, 400);
    if (context.measureText(text).width <= width) return text;
    let low = 0, high = text.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
      else high = middle - 1;
    }
    return low ? text.slice(0, low) + "…" : "";
  }

  strip(row, y, height) {
    const { view, shown } = this, { lane } = row;
    const [from, to] = visible(lane, view.t0, view.t1);
    if (to - from > view.width / 3) {
      const { shares, wide } = this.blank();
      this.pour(shares, wide, lane, from, to, lane.which, 0);
      this.stack(shares, wide, STRIP_STACK, y, height, shown[IDLE] ? lane : null);
      return;
    }
    for (let i = from; i < to; i++) {
      const state = lane.which[i];
      if (!shown[state]) continue;
      this.context.fillStyle = this.colours.fill[state];
      const a = this.clipped(lane.start[i]);
      this.context.fillRect(a, y, Math.max(this.clipped(lane.end[i]) - a, 0.5), height);
    }
  }

  blank() {
    const wide = Math.max(1, Math.round(this.view.width * this.ratio));
    if (!this.shares || this.shares.length !== wide * CLASSES.length) this.shares = new Float64Array(wide * CLASSES.length);
    return { shares: this.shares.fill(0), wide };
  }

  // Add the time of a lane's intervals to the pixels that they cover, each a share of that pixel's time.
  pour(shares, wide, { start, end }, from, to, which, usual) {
    const { t0, t1 } = this.view, perNs = wide / (t1 - t0);
    for (let i = from; i < to; i++) {
      const a = Math.max((start[i] - t0) * perNs, 0), b = Math.min((end[i] - t0) * perNs, wide);
      if (b <= a) continue;
      const first = a | 0, last = b | 0, offset = wide * (which ? which[i] : usual);
      if (first === last) {
        shares[offset + first] += b - a;
        continue;
      }
      shares[offset + first] += first + 1 - a;
      for (let x = first + 1; x < last; x++) shares[offset + x] += 1;
      if (last < wide) shares[offset + last] += b - last;
    }
  }

  columns(lane, from, to, y, height) {
    const { view } = this, { shares, wide } = this.blank();
    this.pour(shares, wide, lane, from, to, lane.which, RANGE);
    if (!lane.ranges) {
      this.pour(shares, wide, lane.exposed, ...visible(lane.exposed, view.t0, view.t1), null, EXPOSED);
      for (let i = 0; i < wide; i++) shares[wide * COMM + i] -= shares[wide * EXPOSED + i];
    }
    this.stack(shares, wide, STACK, y, height, null);
  }

  // One column a device pixel; `idle` is the strip whose rest is idle.
  stack(shares, wide, order, y, height, idle) {
    const { context, ratio, colours, shown, view } = this;
    const high = Math.round(height * ratio);
    const image = context.createImageData(wide, high), pixels = new Uint32Array(image.data.buffer);
    const page = abgr(colours.page);
    pixels.fill(page);
    const inWindow = idle && this.clipped(idle.start[0]), outWindow = idle && this.clipped(idle.end[idle.n - 1]);
    const drawn = order.filter((which) => shown[which]);
    for (let x = 0; x < wide; x++) {
      let sum = 0, bottom = high;
      for (const which of drawn) {
        sum += shares[wide * which + x];
        const top = Math.max(0, high - Math.round(sum * high));
        for (let row = top; row < bottom; row++) pixels[row * wide + x] = colours.pixel[which];
        if (top < bottom) bottom = top;
      }
      const at = view.left + x / ratio;
      if (idle && at >= inWindow && at < outWindow) {
        for (let row = 0; row < bottom; row++) pixels[row * wide + x] = colours.pixel[IDLE];
      }
    }
    context.putImageData(image, Math.round(view.left * ratio), Math.round(y * ratio));
  }

  rectangles(lane, from, to, y, height) {
    const { context, colours, shown } = this;
    for (let i = from; i < to; i++) {
      const which = lane.ranges ? RANGE : lane.which[i];
      const a = this.clipped(lane.start[i]), b = this.clipped(lane.end[i]);
      const wide = Math.max(b - a - (b - a > 3 ? 0.75 : 0), 0.75);
      if (shown[which]) {
        context.fillStyle = colours.fill[which];
        context.fillRect(a, y, wide, height);
      }
      let label = which;
      if (which === COMM && this.pieces(lane, i, y, height) > (lane.end[i] - lane.start[i]) / 2) label = EXPOSED;
      if (b - a > NARROWEST && shown[label]) this.name(lane, i, a, wide, y + height / 2, colours.text[label]);
    }
  }

  // The exposed pieces of an op, in their own shade; returns how long they are.
  pieces(lane, op, y, height) {
    const { context, colours, shown } = this, { exposed } = lane;
    const [from, to] = visible(exposed, lane.start[op], lane.end[op]);
    context.fillStyle = shown[EXPOSED] ? colours.fill[EXPOSED] : colours.page;
    let sum = 0;
    for (let i = from; i < to; i++) {
      const start = Math.max(exposed.start[i], lane.start[op]), end = Math.min(exposed.end[i], lane.end[op]);
      const a = this.clipped(start), b = this.clipped(end);
      if (b > a) context.fillRect(a, y, b - a, height);
      sum += Math.max(0, end - start);
    }
    return sum;
  }

  name(lane, i, a, wide, y, colour) {
    const { context } = this;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colour;
    context.fillText(this.short(nameOf(this.model, lane, i, true), wide - 8), a + 4, y + 0.5);
  }

  // Time that no figure counts is pale.
  outsideWindows() {
    const { context, view } = this;
    context.fillStyle = this.colours.wash;
    for (const [rank, top, bottom] of this.blocks()) {
      let from = view.t0;
      const { windows } = this.model.ranks.find((one) => one.rank === rank);
      for (const [start, end] of [...windows, [view.t1, view.t1]]) {
        const a = this.clipped(from), b = this.clipped(start);
        if (b > a && start > view.t0) context.fillRect(a, top, b - a, bottom - top);
        from = Math.max(from, end);
      }
    }
  }

  // [rank, top, bottom] on the canvas of every rank in sight, its head left out.
  blocks() {
    const found = new Map();
    for (const row of this.rows) {
      const y = this.view.top + row.top - this.view.scroll;
      if (row.kind === "head") found.set(row.rank, [row.rank, y + row.height, y + row.height]);
      else found.get(row.rank)[2] = y + row.height;
    }
    return [...found.values()].filter(([, top, bottom]) => bottom > this.view.top && top < this.view.height);
  }

  boundaries() {
    const { context, colours, view } = this;
    context.strokeStyle = colours.muted;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    for (const [rank, top, bottom] of this.blocks()) {
      let last = -9;
      for (const [of, , start, end] of this.model.steps) {
        if (of !== rank) continue;
        for (const t of [start, end]) {
          const x = Math.round(this.x(t)) + 0.5;
          if (x < view.left || x > view.left + view.width || x - last < 3) continue;
          context.moveTo(x, top - HEIGHT.head + 4);
          context.lineTo(x, bottom);
          last = x;
        }
      }
    }
    context.stroke();
    context.setLineDash([]);
  }

  allFound() {
    const { view, context, isFound } = this;
    context.fillStyle = this.colours.ink;
    for (const row of this.rows) {
      const y = view.top + row.top - view.scroll;
      if (!row.lane || row.kind === "strip" || y + row.height < view.top || y > view.height) continue;
      const [from, to] = visible(row.lane, view.t0, view.t1);
      let last = -9;
      for (let i = from; i < to; i++) {
        if (!isFound(row.lane, i)) continue;
        const a = this.clipped(row.lane.start[i]), b = this.clipped(row.lane.end[i]);
        if (b - last < 1) continue;
        context.fillRect(a, y + row.height - 4, Math.max(b - a, 1), 2);
        last = b;
      }
    }
  }

  outline(context, { row: { lane }, i }, thick) {
    const { view } = this, row = this.rowOf.get(lane);
    if (!row) return;
    const a = this.clipped(lane.start[i]), b = this.clipped(lane.end[i]);
    if (lane.end[i] < view.t0 || lane.start[i] > view.t1) return;
    const y = view.top + row.top - view.scroll;
    context.strokeStyle = this.colours.ink;
    context.lineWidth = thick;
    context.strokeRect(a - 0.5, y - 0.5, Math.max(b - a, 2) + 0.5, row.height - 1);
    context.lineWidth = 1;
  }

  span(context, span) {
    const { colours, view } = this;
    const a = this.clipped(span[0]), b = this.clipped(span[1]);
    context.fillStyle = colours.span;
    context.fillRect(a, view.top, b - a, view.height - view.top);
    context.fillStyle = colours.edge;
    for (const t of span) if (t >= view.t0 && t <= view.t1) context.fillRect(this.x(t) - 0.75, view.top, 1.5, view.height);
  }
}
