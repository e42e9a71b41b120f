// The timeline as an anywidget: what it shares with Python are ns since the payload's zero, integers that float64 holds.

const { mount, inflate } = globalThis.overlapscopeTimeline;

const HIGHEST = 520;  // px of the lanes; a notebook has more to show

function bytes({ buffer, byteOffset, byteLength }) {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

// Loaded once a page, however many timelines it has, and not where a script tag would put it: a notebook's own module
// loader would take it for one of its modules.
function plotly(model) {
  globalThis.overlapscopePlotly = globalThis.overlapscopePlotly || inflate(bytes(model.get("plotly"))).then((text) => {
    const module = { exports: {} };
    new Function("module", "exports", "define", new TextDecoder().decode(text))(module, module.exports, undefined);
    return module.exports;
  });
  return globalThis.overlapscopePlotly;
}

// What JupyterLab and VS Code say of their page; null elsewhere.
function dark() {
  const { classList, dataset } = document.body;
  if (dataset.jpThemeLight !== undefined) return dataset.jpThemeLight === "false";
  if (classList.contains("vscode-dark") || classList.contains("vscode-high-contrast")) return true;
  return classList.contains("vscode-light") ? false : null;
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "ost";
  // JupyterLab's shortcuts: a would insert a cell, d d delete one. It looks at what has the focus.
  root.addEventListener("focusin", (event) => (event.target.dataset.lmSuppressShortcuts = "true"));
  el.append(root);
  let own = false, timeline = null, gone = false;
  const say = (key, value) => {
    own = true;  // what this view says comes back as a change
    model.set(key, value);
    model.save_changes();
    own = false;
  };
  const options = {
    plotly: () => plotly(model),
    height: HIGHEST,
    dark,
    viewed: (t0, t1) => say("shown", t0 === null ? null : [t0, t1]),
    picked: (lane, op) => say("pinned", lane === null ? null : [lane, op]),
  };
  const follow = () => {
    if (own || !timeline) return;
    const shown = model.get("shown");
    if (shown) timeline.show(...shown);
    else timeline.reset();
  };
  const theme = new MutationObserver(() => timeline && timeline.theme());
  const mounted = mount(root, bytes(model.get("payload")), options).then((one) => {
    if (gone) return one.unmount();
    timeline = one;
    root.querySelector("details.figures").open = false;  // a cell should be no longer than a screen
    if (model.get("shown")) follow();
    model.on("change:shown", follow);
    theme.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light"] });
  });
  mounted.catch((error) => root.append(`The timeline cannot be drawn by this browser (${error.message}).`));
  return () => {
    gone = true;
    theme.disconnect();
    model.off("change:shown", follow);
    if (timeline) timeline.unmount();
  };
}

export default { render };
