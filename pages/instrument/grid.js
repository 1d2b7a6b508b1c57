// The grid of all heads, small beside every page and large on some. Python sends the cells in the
// order shown. In a `shared` grid a choice of a head holds for the whole page, and small kernels are
// drawn from its block of numbers; in another the browser sends the picked cell's name as `cell`.
//
// The table is built once per shape and then painted in place, so that focus survives reruns.

// The corners of a kernel's steps in a box of 1 by 1: offsets from left to right with log spacing,
// its largest at the top.
function outline({ block, row }) {
  const heights = row("kernel");
  const most = Math.max(...heights);
  const x = (offset) => Math.log(offset + 1) / Math.log(block.offsets.at(-1) + 1);
  const steps = Array.from(heights, (height, bin) => {
    const y = 0.97 - (0.92 * height) / most;
    return [[x(block.offsets[bin]), y], [x(block.offsets[bin + 1]), y]];
  });
  return most > 0 ? steps.flat() : [];
}

// A path through corners, in a box of this size and place.
const pathOf = (corners, [wide, high] = [1, 1], [left, top] = [0, 0]) =>
  corners
    .map(([x, y]) => `${(left + wide * x).toFixed(3)} ${(top + high * y).toFixed(3)}`)
    .map((at, i) => `${i ? "L" : "M"}${at}`)
    .join("");

const drawing = (columns, rows) =>
  svgNode("svg", { viewBox: `0 0 ${columns} ${rows}`, preserveAspectRatio: "none" });

const line = (d, style) => svgNode("path", { d, style, "vector-effect": "non-scaling-stroke" });

function build(root, data) {
  const [rows, columns] = [data.rows.length, data.rows[0].length];
  const table = buildGrid(rows, columns, "Heads by layer", (cell) =>
    cell.append(make("span", { "aria-hidden": "true" })),
  );
  const scroller = make("div", { class: "scroller" });
  const sheet = make("div", { class: "sheet" });
  const over = make("div", { class: "curves" });
  const drawn = drawing(columns, rows);
  over.append(drawn);
  const tip = make("div", { class: "tip", popover: "manual", "aria-hidden": "true" });
  const legend = make("div", { class: "legend" });
  const hint = make("div", { class: "hint" }, "↔ Scroll sideways for more heads.");
  sheet.append(table, over);
  scroller.append(sheet);
  root.replaceChildren(scroller, hint, legend, tip);
  const view = { root, table, scroller, drawn, legend, tip, cells: cellsOf(table), painted: "" };
  view.byName = new Map();
  listen(view);
  new ResizeObserver(() => {
    markScroll(view);
    if (view.wide === scroller.clientWidth) return;
    Object.assign(view, { wide: scroller.clientWidth, curved: "" }); // 0: folded away
    clearTimeout(view.later); // curves stretch until the width rests
    view.later = setTimeout(() => paintCurves(view), drawn.firstChild ? 120 : 0);
  }).observe(scroller);
  return view;
}

// Mark whether there are columns beyond either edge, and beyond the right edge.
function markScroll({ root, scroller }) {
  const beyond = scroller.scrollWidth - scroller.clientWidth;
  root.classList.toggle("scrolls", beyond > 2);
  root.classList.toggle("more", beyond - scroller.scrollLeft > 2);
}

// Numbers on a header only where they fit: all, or every 2nd, 4th, 8th.
function paintHeaders(view, { headers, corner, small }) {
  view.table.tHead.rows[0].cells[0].textContent = corner;
  const doubled = (small ? [16, 24, 40] : [16, 32, 64]).filter((most) => headers.length > most);
  const nodes = view.table.tHead.querySelectorAll("th");
  headers.forEach((text, c) => {
    nodes[c].textContent = c % 2 ** doubled.length ? "" : text;
    nodes[c].setAttribute("aria-label", text);
  });
  const [least, most] = small ? [6, 20] : [14, 34];
  const height = Math.max(least, Math.min(most, Math.floor(400 / view.cells.length)));
  view.root.style.setProperty("--cell-height", `${height}px`);
  view.root.style.setProperty("--columns", headers.length);
  view.root.classList.toggle("low", height < 10);
  view.root.classList.toggle("dense", headers.length > 24);
  view.root.classList.toggle("densest", headers.length > 40);
}

function paintCells(view, rows) {
  view.byName.clear();
  view.drawn.replaceChildren();
  rows.forEach((row, r) =>
    row.forEach((cell, c) => {
      const node = view.cells[r][c];
      view.byName.set(cell.name, node);
      node.dataset.name = cell.name;
      node.setAttribute("aria-label", cell.label);
      node.firstChild.replaceChildren(cell.mark);
      node.firstChild.style.cssText = `background-color:${cell.colour};color:${cell.ink}`;
      node.firstChild.classList.toggle("missing", cell.missing);
      node.classList.toggle("dimmed", cell.dimmed);
      node.classList.remove("curved");
      node.toggleAttribute("data-known", cell.mark.includes("★"));
      node.toggleAttribute("data-sink", cell.mark.includes("▖"));
    }),
  );
}

// Kernels at the query position in place of the marks, where a cell has room. All of one colour are
// one path above the table: a drawing in each cell makes every later change of the page slower.
function paintCurves(view) {
  const key = view.curves ? given.blocks[state.query] : null;
  const there = view.scroller.clientWidth > 0; // neither folded away nor gone
  if (!there || !blocks.has(key) || view.curved === key) return;
  view.curved = key;
  const { offsetWidth, offsetHeight } = view.cells[0][0];
  const gap = parseFloat(getComputedStyle(view.table).borderSpacing);
  const size = [offsetWidth, offsetHeight].map((each) => each / (each + gap));
  const paths = new Map();
  for (const [name, node] of view.byName) {
    const read = reading("kernel", name);
    if (!read) continue;
    const opacity = node.matches(".dimmed") ? 0.15 : 1;
    const style = `color:${node.firstChild.style.color};opacity:${opacity}`;
    const place = [node.cellIndex - 1, node.parentNode.sectionRowIndex];
    paths.set(style, (paths.get(style) ?? "") + pathOf(outline(read), size, place));
    node.firstChild.replaceChildren();
    node.classList.add("curved");
  }
  view.drawn.replaceChildren(...Array.from(paths, ([style, d]) => line(d, style)));
}

function paintLegend(view, data) {
  const pieces = [];
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
    pieces.push(make("div", { class: "title" }, data.legendTitle), scale);
  }
  if (data.glyphs.length) {
    const list = make("div", { class: "glyphs" });
    for (const [glyph, meaning] of data.glyphs) {
      const entry = make("span");
      entry.append(make("b", {}, glyph), ` ${meaning}`);
      list.append(entry);
    }
    pieces.push(list);
  }
  view.legend.replaceChildren(...pieces);
}

// The kernel again, larger, with what its axes say.
function largeCurve(name) {
  const read = reading("kernel", name);
  if (!read) return [];
  const axis = make("div", { class: "axis" });
  axis.append(
    make("span", {}, "offset 0"),
    make("span", {}, `kernel at n = ${read.block.n}, log spacing`),
    make("span", {}, `${read.block.offsets.at(-1) - 1}`),
  );
  const large = make("div", { class: "large" });
  const svg = drawing(1, 1);
  svg.append(line(pathOf(outline(read)), ""));
  large.append(svg);
  return [large, axis];
}

function showTip(view, cell) {
  const { name } = cell.dataset;
  if (view.shared && !cell.matches(":focus-visible") && state.seen !== name) choose({ seen: name });
  clearTimeout(view.tipping);
  view.tipping = setTimeout(
    () => openTip(view, cell, ...saidBy(cell), ...(view.shared ? largeCurve(name) : [])),
    100,
  );
}

const focusedCell = (view) => view.table.querySelector("td[data-name]:focus-visible");

function pick(view, cell) {
  if (!view.shared) {
    select(view, cell.dataset.name);
    view.send("cell", cell.dataset.name);
  } else if (!cell.classList.contains("bare")) decide({ cell: cell.dataset.name });
}

function listen(view) {
  listenToCells(view, pick, showTip);
  view.table.addEventListener("mouseleave", () => view.shared && choose({ seen: null }));
  view.root.addEventListener("click", ({ target }) => {
    if (view.shared && !target.closest("td[data-name]")) view.byName.get(state.cell)?.focus();
  });
  view.scroller.addEventListener("scroll", () => {
    markScroll(view);
    const cell = focusedCell(view);
    if (cell) showTip(view, cell);
    else hideTip(view);
  });
}

// Left and right lead on from the selected head wherever nothing else takes these keys.
const TAKES = "input, textarea, select, video, [contenteditable=true], [role], [data-baseweb] *";
document.addEventListener("keydown", (event) => {
  const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
  if (!/^Arrow(Left|Right)$/.test(key) || ctrlKey || metaKey || altKey || shiftKey) return;
  if (event.defaultPrevented || event.composedPath()[0].matches?.(TAKES)) return;
  const [view, cell] = walkable();
  if (cell) onKey(view, cell, event, pick);
});

parts.grid = ({ parentElement, data, setTriggerValue }) => {
  let view = views.get(parentElement);
  const [rows, columns] = [data.rows.length, data.rows[0].length];
  if (view?.cells.length !== rows || view.cells[0].length !== columns) {
    view = build(parentElement.querySelector(".head-grid"), data);
    views.set(parentElement, view);
  }
  const { selected, ...picture } = data;
  const signature = JSON.stringify(picture);
  if (view.painted !== signature) {
    Object.assign(view, { shared: data.shared, curves: data.kernels, painted: signature });
    Object.assign(view, { curved: "", selected: "", pinned: null }); // the cells may have moved
    view.root.classList.toggle("small", Boolean(data.small));
    paintHeaders(view, data);
    paintCells(view, data.rows);
    paintLegend(view, data);
  }
  view.send = setTriggerValue;
  if (data.shared) grids.add(view);
  if (!data.shared) return select(view, selected);
  return () => {
    if (view.selected !== state.cell) select(view, (view.selected = state.cell));
    clearTimeout(view.later); // the large curve first, the small ones when the hand rests
    view.later = setTimeout(() => paintCurves(view), view.curved ? 120 : 0);
    if (view.pinned !== given.pinned)
      for (const [name, node] of view.byName)
        node.classList.toggle("pinned", given.pinned.includes(name));
    view.pinned = given.pinned;
  };
};
