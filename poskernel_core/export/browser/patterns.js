// The patterns of all heads, small: one canvas beneath a table with `role=grid`. The data hold a byte
// for every cell of every head, or a function `level`; the picked head's name is sent as `cell`.
// `names` are written below the pictures, where rows of the table are not layers.

const BAR = "#d55e00";
const HEADER = 34;
const GAP = 4;
const BAR_FOOT = 5; // the bar of a head's share by position
const NAME_FOOT = 16;
const SMALLEST = 26;
const LARGEST = 84;
const instances = new WeakMap();

function build(root, data) {
  const table = buildGrid(data.layers, data.heads, "Attention of every head", (cell, l, h) => {
    cell.setAttribute("data-name", `L${l}H${h}`);
    if (data.names) cell.textContent = data.names[l * data.heads + h];
  });
  if (data.names) {
    for (const cell of cellsOf(table).flat().slice(data.names.length)) cell.remove();
    for (const row of table.tBodies[0].rows) row.cells[0].textContent = "";
  }
  root.classList.toggle("named", Boolean(data.names));
  const scroller = make("div", { class: "scroller" });
  const stage = make("div", { class: "stage" });
  const canvas = make("canvas", { "aria-hidden": "true" });
  const hint = make("div", { class: "hint" }, "↔ Scroll sideways for more heads.");
  const legend = make("div", { class: "legend" });
  const tip = make("div", { class: "tip", popover: "manual", "aria-hidden": "true" });
  const looks = [[data.signed ? "ramp diverging" : "ramp", ""]];
  if (data.shares) looks.push(["share", "score variance explained by position on this text"]);
  for (const [look, meaning] of looks) {
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

function paint(view) {
  const { data, scroller, canvas, root } = view;
  const room = scroller.clientWidth - HEADER - 8;
  if (room <= 0) return;
  const size = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(room / data.heads)));
  root.style.setProperty("--size", `${size}px`);
  root.style.setProperty("--wide", `${HEADER + size * data.heads}px`);
  const step = size >= 30 ? 1 : 2;
  [...view.table.tHead.querySelectorAll("th")].forEach((node, h) => {
    node.textContent = data.names || h % step ? "" : `H${h}`;
  });
  const beyond = scroller.scrollWidth - scroller.clientWidth;
  root.classList.toggle("scrolls", beyond > 2);
  const ratio = window.devicePixelRatio || 1;
  const high = size + (data.names ? NAME_FOOT : BAR_FOOT);
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
      if (!data.pictures[l * data.heads + h]) continue;
      const [x, y] = [h * size + GAP / 2, l * high + GAP / 2];
      brush.drawImage(data.pictures[l * data.heads + h], x, y, inner, inner);
      brush.strokeStyle = "rgba(128,128,128,0.35)";
      brush.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
      if (!data.shares) continue;
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

function patterns({ data, parentElement, setTriggerValue }) {
  let view = instances.get(parentElement);
  if (view?.data.layers !== data.layers || view.data.heads !== data.heads) {
    view = build(parentElement.querySelector(".patterns"), data);
    instances.set(parentElement, view);
  }
  const key = data.key ?? data.cells;
  if (view.drawn !== key) {
    const { layers, heads, side, labels, signed } = data;
    const shades = data.cells && bytes(data.cells);
    const level = data.level ?? ((head, n, i) => shades[(head * side + n) * side + i] / 255);
    view.data = { ...data };
    view.data.pictures = Array.from({ length: layers * heads }, (_, head) =>
      head < view.cells.flat().length
        ? dots(side, side, (n, i) => level(head, n, i), signed)
        : undefined,
    );
    view.cells.flat().forEach((node, at) => {
      const [l, h] = [Math.floor(at / heads), at % heads];
      node.setAttribute("aria-label", labels[l][h]);
      if (data.bare.includes(l)) node.setAttribute("aria-disabled", "true");
      else node.removeAttribute("aria-disabled");
    });
    view.scale.textContent = scaleText(data);
    paint(view);
    view.drawn = key;
  }
  view.send = setTriggerValue;
  select(view, data.selected);
  return () => hideTip(view);
}
