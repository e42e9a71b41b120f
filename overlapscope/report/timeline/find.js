// What lies where: under the pointer, in a span, behind a name.

const REACH = 3;  // px around the pointer within which a rectangle is meant

class Finder {
  constructor(painter) {
    this.painter = painter;
    this.model = painter.model;
  }

  rowAt(y) {
    const at = y - this.painter.view.top + this.painter.view.scroll;
    if (y < this.painter.view.top) return null;
    return this.painter.rows.find((row) => at >= row.top && at < row.top + row.height) || null;
  }

  // Under a point of the canvas: { row, i, many } or null; many counts the ops of that pixel where they are several.
  at(x, y) {
    const { view, perNs } = this.painter, row = this.rowAt(y);
    if (!row || !row.lane || x < view.left || x > view.left + view.width) return null;
    const { lane } = row, t = view.t0 + (x - view.left) / perNs, pixel = 0.5 / perNs;
    const [first, last] = visible(lane, t - pixel, t + pixel);
    if (last - first > 2) return { row, t, many: [first, last], i: longest(lane, first, last) };
    const [from, to] = visible(lane, t - REACH / perNs, t + REACH / perNs);
    let best = -1, distance = Infinity;
    for (let i = from; i < to; i++) {
      const away = Math.max(lane.start[i] - t, t - lane.end[i], 0);
      if (away < distance) [best, distance] = [i, away];
    }
    return best < 0 ? null : { row, t, i: best };
  }

  // Exposed time of an op: the pieces inside it.
  exposed(lane, i) {
    return lane.ranges ? 0 : covered(lane.exposed, lane.start[i], lane.end[i]);
  }

  // The same collective on all ranks: its rows and positions.
  same({ row, i }) {
    const match = row.lane.match && row.lane.match[i];
    if (!match) return [];
    if (!this.matches) {
      this.matches = new Map();
      for (const other of this.painter.every) {
        const column = other.lane && other.lane.match;
        for (let k = 0; column && k < column.length; k++) {
          if (!column[k]) continue;
          if (!this.matches.has(column[k])) this.matches.set(column[k], []);
          this.matches.get(column[k]).push({ row: other, i: k });
        }
      }
    }
    return this.matches.get(match);
  }

  // Of each rank what its states take of a span, in ns, exactly.
  span(t0, t1) {
    return this.model.strips.map((strip) => {
      const sums = new Array(OF_STATE.length).fill(0);
      const [from, to] = visible(strip, t0, t1);
      for (let i = from; i < to; i++) {
        sums[strip.state[i]] += Math.max(0, Math.min(strip.end[i], t1) - Math.max(strip.start[i], t0));
      }
      const [alone, overlapped, exposed, memory, idle] = sums;
      return {
        rank: strip.rank,
        window_ns: alone + overlapped + exposed + memory + idle,
        compute_ns: alone + overlapped,
        comm_ns: overlapped + exposed,
        overlap_ns: overlapped,
        exposed_comm_ns: exposed,
        exposed_memory_ns: memory,
        idle_ns: idle,
      };
    });
  }

  // Look for a part of a name, whatever its case; returns how many ops and ranges have it.
  search(text) {
    const wanted = text.toLowerCase();
    const has = (name) => name !== null && name.toLowerCase().includes(wanted);
    const ops = this.model.names.map(([name, short]) => wanted !== "" && (has(name) || has(short)));
    const ranges = this.model.range_names.map((name) => wanted !== "" && has(name));
    this.isFound = wanted === "" ? null : (lane, i) => (lane.ranges ? ranges : ops)[lane.name[i]];
    this.count = 0;
    for (const lane of this.model.lanes) {
      for (let i = 0; this.isFound && i < lane.n; i++) if (this.isFound(lane, i)) this.count++;
    }
    return this.count;
  }

  named() {
    return this.painter.every.filter((row) => row.lane && row.kind !== "strip");
  }

  // The next found one (step 1) or the one before (-1) by start, lanes from the top; round and round.
  next(from, step) {
    const rows = this.named();
    const key = ({ row, i }) => [row.lane.start[i], rows.indexOf(row)];
    const later = (a, b) => (a[0] - b[0] || a[1] - b[1]) * step > 0;
    const here = from && key(from);
    let best = null, outermost = null;
    rows.forEach((row, place) => {
      const { lane } = row;
      for (let k = 0; k < lane.n; k++) {
        const i = step > 0 ? k : lane.n - 1 - k;
        if (!this.isFound(lane, i)) continue;
        const mine = [lane.start[i], place];
        if (!outermost || later(key(outermost), mine)) outermost = { row, i };
        if (here && !later(mine, here)) continue;
        if (!best || later(key(best), mine)) best = { row, i };
        break;
      }
    });
    return best || outermost;
  }

  // Which of the found ones it is, from 1.
  place(one) {
    const rows = this.named();
    const mine = rows.indexOf(one.row), start = one.row.lane.start[one.i];
    let n = 0;
    rows.forEach(({ lane }, place) => {
      const to = above(lane.start, start);
      for (let i = 0; i < to; i++) {
        const before = lane.start[i] < start || place < mine || (place === mine && i <= one.i);
        if (before && this.isFound(lane, i)) n++;
      }
    });
    return n;
  }
}

function longest(lane, from, to) {
  let best = from;
  for (let i = from; i < to; i++) if (lane.end[i] - lane.start[i] > lane.end[best] - lane.start[best]) best = i;
  return best;
}
