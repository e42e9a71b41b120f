// Plotly's part: the axis of time, what dragging does, and its half of a picture.

const AXIS = 34;  // px above the plot
const RIGHT = 14;
const EDGE = 0.02;  // of the timeline, to be seen beyond either end

// What is in view as the axis counts: ms.
function range({ t0, t1 }) {
  return [t0 / 1e6, t1 / 1e6];
}

class Axis {
  // `dragged(t0, t1)` hears of a new view, `reset()` of a double click.
  constructor(plot, model, dragged, reset) {
    Object.assign(this, { plot, model, dragged, reset, style: {} });
  }

  async start(plotly, view) {
    const { start, end } = this.model, edge = (end - start) * EDGE;
    const layout = {
      margin: { l: view.left, r: RIGHT, t: AXIS, b: 0 },
      showlegend: false,
      hovermode: false,
      dragmode: "zoom",
      plot_bgcolor: "rgba(0,0,0,0)",
      paper_bgcolor: "rgba(0,0,0,0)",
      xaxis: {
        side: "top",
        minallowed: (start - edge) / 1e6,
        maxallowed: (end + edge) / 1e6,
        range: range(view),
        zeroline: false,
        exponentformat: "none",
        separatethousands: true,
        ticks: "outside",
        ticklen: 4,
        automargin: false,
      },
      yaxis: { visible: false, fixedrange: true, range: [0, 1] },
    };
    const config = { displayModeBar: false, doubleClick: false, showTips: false };
    // An axis needs something on it.
    const nothing = { x: [start / 1e6], y: [0], mode: "markers", opacity: 0, hoverinfo: "skip" };
    await plotly.newPlot(this.plot, [nothing], layout, config);
    this.plotly = plotly;
    this.plot.on("plotly_relayouting", (event) => {
      if ("xaxis.range[0]" in event) this.take([event["xaxis.range[0]"], event["xaxis.range[1]"]]);
    });
    this.plot.on("plotly_relayout", (event) => "xaxis.range[0]" in event && this.take(this.plot.layout.xaxis.range));
    this.plot.on("plotly_doubleclick", () => this.reset());
    await this.set({ "xaxis.range": range(view) });  // and what else was set before it began
  }

  end() {
    if (this.plotly) this.plotly.purge(this.plot);
    this.plotly = null;
  }

  take(ms) {
    if (!this.busy) this.dragged(ms[0] * 1e6, ms[1] * 1e6);
  }

  // Change the layout, once Plotly is there: one change at a time, those that come meanwhile together.
  async set(changes) {
    this.pending = { ...this.pending, ...changes };
    if (!this.plotly || this.busy) return;
    this.busy = true;
    while (this.pending && this.plotly) {
      const some = this.pending;
      this.pending = null;
      await this.plotly.relayout(this.plot, some);
    }
    this.busy = false;
  }

  dress({ muted, line }) {
    this.set({
      font: { family: "system-ui, sans-serif", size: 11, color: muted },
      "xaxis.gridcolor": line,
      "xaxis.tickcolor": line,
      "xaxis.color": muted,
    });
  }

  async picture(view, scale) {
    if (!this.plotly) return null;
    const image = new Image();
    image.src = await this.plotly.toImage(this.plot, { format: "png", width: view.all, height: view.height, scale });
    await image.decode();
    return image;
  }
}
