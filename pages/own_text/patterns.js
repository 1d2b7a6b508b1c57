// The patterns of all heads, small: one canvas beneath a table with `role=grid`. Python sends a byte
// for every cell of every head; the browser sends the picked head's name as the state `cell`.

const BAR = "#d55e00";
const HEADER = 34;
const GAP = 4;
const FOOT = 5; // the bar of a head's share by position
const SMALLEST = 26;
const LARGEST = 84;
const instances = new WeakMap();

function build(root, data) {
  const table = buildGrid(data.layers, data.heads, "Attention of every head", (cell, l, h) =>
    cell.setAttribute("data-name", `L${l}H${h}`),
  );
  const scroller = make("div", { class: "scroller" });
  const stage = make("div", { class: "stage" });
  const canvas = make("canvas", { "aria-hidden": "true" });
  const hint = make("div", { class: "hint" }, "↔ Scroll sideways for more heads.");
  const legend = make("div", { class: "legend" });
  const tip = make("div", { class: "tip", popover: "manual", "aria-hidden": "true" });
  for (const [look, meaning] of [
    ["ramp", ""],
    ["share", "score variance explained by position on this text"],
  ]) {
    const entry = make("div");
    entry.append(make("span", { class: look, "aria-hidden": "true" }), make("span", {}, meaning));
    legend.append(entry);
  }
  stage.append(canvas, table);
  scroller.append(stage);
  root.replaceChildren(scroller, hint, legend, tip);
  const scale = legend.querySelector(".ramp + span");
  const view = { root, scroller, stage, canvas, table, tip, scale, cells: cellsOf(table), data };
  listenToCells(view, pick, showTip);
  new ResizeObserver(() => paint(view)).observe(scroller);
  return view;
}

// A head's pattern at its own size; it is then scaled to its cell.
function pictureOf(data, head) {
  const { side } = data;
  const image = new ImageData(side, side);
  const from = head * side * side;
  for (let at = 0; at < side * side; at++) {
    image.data.set(INK, 4 * at);
    image.data[4 * at + 3] = data.shades[from + at];
  }
  const picture = new OffscreenCanvas(side, side);
  picture.getContext("2d").putImageData(image, 0, 0);
  return picture;
}

function paint(view) {
  const { data, scroller, canvas, root } = view;
  const room = scroller.clientWidth - HEADER - 8;
  if (room <= 0) return;
  const size = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(room / data.heads)));
  root.style.setProperty("--size", `${size}px`);
  root.style.setProperty("--wide", `${HEADER + size * data.heads}px`);
  const step = size >= 30 ? 1 : 2;
  [...view.table.tHead.querySelectorAll("th")].forEach((node, h) => {
    node.textContent = h % step ? "" : `H${h}`;
  });
  const beyond = scroller.scrollWidth - scroller.clientWidth;
  root.classList.toggle("scrolls", beyond > 2);
  const ratio = window.devicePixelRatio || 1;
  const high = size + FOOT;
  canvas.width = size * data.heads * ratio;
  canvas.height = high * data.layers * ratio;
  canvas.style.width = `${size * data.heads}px`;
  canvas.style.height = `${high * data.layers}px`;
  const brush = canvas.getContext("2d");
  brush.scale(ratio, ratio);
  const inner = size - GAP;
  brush.imageSmoothingEnabled = data.side > inner * ratio;
  brush.imageSmoothingQuality = "high";
  for (let l = 0; l < data.layers; l++) {
    if (data.bare.includes(l)) continue;
    for (let h = 0; h < data.heads; h++) {
      const [x, y] = [h * size + GAP / 2, l * high + GAP / 2];
      brush.drawImage(data.pictures[l * data.heads + h], x, y, inner, inner);
      brush.strokeStyle = "rgba(128,128,128,0.35)";
      brush.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
      const share = Math.max(0, Math.min(1, data.shares[l][h] ?? 0));
      brush.fillStyle = "rgba(128,128,128,0.35)";
      brush.fillRect(x, y + inner + 1, inner, 3);
      brush.fillStyle = BAR;
      brush.fillRect(x, y + inner + 1, share * inner, 3);
    }
  }
}

const showTip = (view, cell) => openTip(view, cell, ...saidBy(cell));

function pick(view, cell) {
  if (cell.getAttribute("aria-disabled")) return;
  select(view, cell.dataset.name);
  view.send("cell", cell.dataset.name);
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  let view = instances.get(parentElement);
  if (view?.data.layers !== data.layers || view.data.heads !== data.heads) {
    view = build(parentElement.querySelector(".patterns"), data);
    instances.set(parentElement, view);
  }
  if (view.drawn !== data.cells) {
    const shades = bytes(data.cells);
    view.data = { ...data, shades };
    view.data.pictures = Array.from({ length: data.layers * data.heads }, (_, head) =>
      pictureOf(view.data, head),
    );
    view.cells.flat().forEach((node, at) => {
      const [l, h] = [Math.floor(at / data.heads), at % data.heads];
      node.setAttribute("aria-label", data.labels[l][h]);
      if (data.bare.includes(l)) node.setAttribute("aria-disabled", "true");
      else node.removeAttribute("aria-disabled");
    });
    view.scale.textContent = scaleText(data.top);
    paint(view);
    view.drawn = data.cells;
  }
  view.send = setTriggerValue;
  select(view, data.selected);
  return () => hideTip(view);
}
