// The layer x head grid. Python sends the cells in the order shown; the browser sends the picked
// cell's name ("L3H7") as the component's state `cell`.
//
// The table is built once per shape and then painted in place, so that focus survives reruns.

const instances = new WeakMap();

const SVG = "http://www.w3.org/2000/svg";

const draw = (tag, attributes) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

// Curves come as one byte for each point, head after head; 255 means no value. Each curve is scaled
// to its largest value.
function readCurves(curves) {
  if (!curves) return null;
  const codes = bytes(curves.codes);
  const [points, heads] = [curves.starts.length, curves.most[0].length];
  return (name) => {
    const [, layer, head] = name.match(/L(\d+)H(\d+)/).map(Number);
    const most = curves.most[layer][head];
    if (most === null) return null;
    const at = (layer * heads + head) * points;
    return { heights: codes.subarray(at, at + points), most };
  };
}

// A curve in a box of 100 by 100, steps from left to right.
function curveNode({ heights }, attributes) {
  const width = 100 / heights.length;
  const steps = [...heights].map((height, i) => {
    const y = (97 - (92 * height) / 254).toFixed(1);
    return `${(i * width).toFixed(2)},${y} ${((i + 1) * width).toFixed(2)},${y}`;
  });
  const svg = draw("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", ...attributes });
  svg.append(
    draw("polygon", { points: `0,97 ${steps.join(" ")} 100,97` }),
    draw("polyline", { points: steps.join(" "), "vector-effect": "non-scaling-stroke" }),
  );
  return svg;
}

function build(root, data) {
  const [rows, columns] = [data.rows.length, data.rows[0].length];
  const table = buildGrid(rows, columns, "Heads by layer", (cell) =>
    cell.append(make("span", { "aria-hidden": "true" })),
  );
  const scroller = make("div", { class: "scroller" });
  const tip = make("div", { class: "tip", popover: "manual", "aria-hidden": "true" });
  const legend = make("div", { class: "legend" });
  const hint = make("div", { class: "hint" }, "↔ Scroll sideways for more heads.");
  scroller.append(table);
  root.replaceChildren(scroller, hint, legend, tip);
  const view = { root, table, scroller, legend, tip, cells: cellsOf(table), painted: "" };
  listen(view);
  new ResizeObserver(() => markScroll(view)).observe(scroller);
  return view;
}

// Mark whether there are columns beyond either edge, and beyond the right edge.
function markScroll({ root, scroller }) {
  const beyond = scroller.scrollWidth - scroller.clientWidth;
  root.classList.toggle("scrolls", beyond > 2);
  root.classList.toggle("more", beyond - scroller.scrollLeft > 2);
}

// Numbers on a header only where they fit: all up to 16 columns, then every 2nd, every 4th.
function paintHeaders(view, headers, corner) {
  view.table.tHead.rows[0].cells[0].textContent = corner;
  const step = headers.length <= 16 ? 1 : headers.length <= 32 ? 2 : 4;
  const nodes = view.table.tHead.querySelectorAll("th");
  headers.forEach((text, c) => {
    nodes[c].textContent = c % step ? "" : text;
    nodes[c].setAttribute("aria-label", text);
  });
  const height = Math.max(14, Math.min(34, Math.floor(400 / view.cells.length)));
  view.root.style.setProperty("--cell-height", `${height}px`);
  view.root.style.setProperty("--columns", headers.length);
  view.root.classList.toggle("dense", headers.length > 24);
}

function paintCells(view, rows) {
  rows.forEach((row, r) =>
    row.forEach((cell, c) => {
      const node = view.cells[r][c];
      const face = node.firstChild;
      node.dataset.name = cell.name;
      node.setAttribute("aria-label", cell.label);
      const curve = view.curves?.(cell.name);
      if (curve) face.replaceChildren(curveNode(curve, { class: "small" }));
      else face.textContent = cell.mark;
      face.style.cssText = `background-color:${cell.colour};color:${cell.ink}`;
      face.classList.toggle("missing", cell.missing);
      node.classList.toggle("dimmed", cell.dimmed);
    }),
  );
}

function paintLegend(view, data) {
  const parts = [];
  if (data.legend.length) {
    const bar = make("div", { class: "bar" });
    bar.style.background = `linear-gradient(to right, ${data.legend.map((s) => s[0]).join(",")})`;
    const ticks = make("div", { class: "ticks" });
    data.legend.forEach(([, text], i) => {
      if (!text) return;
      const tick = make("span", {}, text);
      tick.style.left = `${(100 * i) / (data.legend.length - 1)}%`;
      ticks.append(tick);
    });
    const scale = make("div", { class: "scale" });
    scale.append(bar, ticks);
    parts.push(make("div", { class: "title" }, data.legendTitle), scale);
  }
  if (data.glyphs.length) {
    const list = make("div", { class: "glyphs" });
    for (const [glyph, meaning] of data.glyphs) {
      const entry = make("span");
      entry.append(make("b", {}, glyph), ` ${meaning}`);
      list.append(entry);
    }
    parts.push(list);
  }
  view.legend.replaceChildren(...parts);
}

// The curve again, larger, with what its axes say.
function largeCurve(view, curve) {
  const axis = make("div", { class: "axis" });
  axis.append(
    make("span", {}, "offset 0"),
    make("span", {}, "tokens, log spacing"),
    make("span", {}, `${view.last}`),
  );
  const top = make("div", { class: "axis" });
  top.append(make("span", {}, `largest ${curve.most}`), make("span", {}, "kernel, mean in each bin"));
  return [top, curveNode(curve, { class: "large" }), axis];
}

function showTip(view, cell) {
  const curve = view.curves?.(cell.dataset.name);
  openTip(view, cell, ...saidBy(cell), ...(curve ? largeCurve(view, curve) : []));
}

const focusedCell = (view) => view.table.querySelector("td[data-name]:focus-visible");

function pick(view, cell) {
  select(view, cell.dataset.name);
  view.send("cell", cell.dataset.name);
}

function listen(view) {
  listenToCells(view, pick, showTip);
  view.scroller.addEventListener("scroll", () => {
    markScroll(view);
    const cell = focusedCell(view);
    if (cell) showTip(view, cell);
    else hideTip(view);
  });
}

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  let view = instances.get(parentElement);
  const [rows, columns] = [data.rows.length, data.rows[0].length];
  if (view?.cells.length !== rows || view.cells[0].length !== columns) {
    view = build(parentElement.querySelector(".head-grid"), data);
    instances.set(parentElement, view);
  }
  const { selected, ...picture } = data;
  const signature = JSON.stringify(picture);
  if (view.painted !== signature) {
    view.curves = readCurves(data.curves);
    view.last = data.curves?.last;
    view.root.classList.toggle("curved", Boolean(view.curves));
    paintHeaders(view, data.headers, data.corner);
    paintCells(view, data.rows);
    paintLegend(view, data);
    view.painted = signature;
  }
  view.send = setStateValue;
  select(view, selected);
  return () => hideTip(view);
}
