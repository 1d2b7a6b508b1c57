// Shared by all components: this script is put before the script of each. A `view` has `cells`,
// row by row, and a `tip`, a popover that a cell opens.

const make = (tag, attributes = {}, text = "") => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
};

function bytes(text) {
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) found[at] = letters.charCodeAt(at);
  return found;
}

// Legible on light and dark paper: of shares, and of numbers below 0; of numbers above 0.
const INK = [42, 133, 199];
const ABOVE = [213, 94, 0];
const inkOf = (level, signed) => (signed && level > 0 ? ABOVE : INK);

// How full the ink of a number is, from -1 to 1: of shares by the square root.
const fullness = (number, top, signed) =>
  signed
    ? Math.max(-1, Math.min(1, number / top))
    : Math.sqrt(Math.max(0, Math.min(1, number / top)));

function scaleText({ top, signed, unit = "share of attention" }) {
  if (signed) return `${unit}, −${top} or less (blue) to ${top} or more (orange)`;
  const end = top === 1 && unit === "share of attention" ? "1" : `${top} or more`;
  return `${unit}, 0 to ${end} (square-root scale)`;
}

// A picture with a dot for each number, whose `level` is undefined where there is none.
function dots(wide, high, level, signed = false, faintest = 0) {
  const image = new ImageData(wide, high);
  const packed = new Uint32Array(image.data.buffer);
  const [positive, negative] = [1, -1].map((level) => {
    const [red, green, blue] = inkOf(level, signed);
    return (blue << 16) | (green << 8) | red;
  });
  let at = 0;
  for (let n = 0; n < high; n++) {
    for (let i = 0; i < wide; i++, at++) {
      const one = level(n, i);
      if (one === undefined) continue;
      const alpha = Math.round(faintest + (255 - faintest) * Math.abs(one));
      packed[at] = (alpha << 24) | (one < 0 ? negative : positive);
    }
  }
  const picture = new OffscreenCanvas(wide, high);
  picture.getContext("2d").putImageData(image, 0, 0);
  return picture;
}

// Buttons of which one is pressed; `act` gets the name of the chosen one.
function choice(label, names, chosen, act) {
  const group = make("div", { class: "choice", role: "group", "aria-label": label });
  const press = (name) => {
    for (const node of group.children)
      node.setAttribute("aria-pressed", String(node.textContent === name));
  };
  for (const name of names) {
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      press(name);
      act(name);
    });
    group.append(button);
  }
  press(chosen);
  return group;
}

// A table that screen readers know as a grid; `fill` completes each of its cells.
function buildGrid(rows, columns, label, fill) {
  const table = make("table", { role: "grid", "aria-label": label });
  const head = table.createTHead().insertRow();
  head.setAttribute("role", "row");
  head.append(make("td", { role: "presentation" }));
  for (let c = 0; c < columns; c++) head.append(make("th", { role: "columnheader" }));
  const body = table.createTBody();
  for (let r = 0; r < rows; r++) {
    const row = body.insertRow();
    row.setAttribute("role", "row");
    row.append(make("th", { role: "rowheader" }, `L${r}`));
    for (let c = 0; c < columns; c++) {
      const cell = make("td", { role: "gridcell", tabindex: "-1", "aria-selected": "false" });
      fill(cell, r, c);
      row.append(cell);
    }
  }
  return table;
}

const cellsOf = (table) => [...table.tBodies[0].rows].map((row) => [...row.cells].slice(1));

// One cell is selected, and one (the focused, else the selected) can be reached by Tab.
function select(view, name) {
  const chosen = view.table.querySelector(`td[data-name="${name}"]`);
  const stop = view.table.querySelector("td[data-name]:focus") ?? chosen ?? view.cells[0][0];
  for (const node of view.table.querySelectorAll("td[aria-selected=true], td[tabindex='0']")) {
    node.setAttribute("aria-selected", "false");
    node.tabIndex = -1;
  }
  chosen?.setAttribute("aria-selected", "true");
  stop.tabIndex = 0;
}

// What a cell says, its name in bold.
function saidBy(cell) {
  const label = cell.getAttribute("aria-label");
  const split = label.indexOf(": ") + 1;
  return [make("b", {}, label.slice(0, split)), label.slice(split)];
}

// Show a few nodes beside a cell: above it where there is room, never beyond the window.
function openTip(view, cell, ...nodes) {
  if (!view.tip.isConnected) return; // the grid went while the tip was on its way
  view.tip.replaceChildren(...nodes);
  view.tip.style.cssText = "left:0;top:0";
  view.tip.showPopover();
  const at = cell.getBoundingClientRect();
  const { width, height } = view.tip.getBoundingClientRect();
  const room = document.documentElement.clientWidth - width - 8;
  const above = at.top - height - 8;
  view.tip.style.left = `${Math.max(8, Math.min(room, at.left + (at.width - width) / 2))}px`;
  view.tip.style.top = `${above >= 8 ? above : at.bottom + 8}px`;
}

const hideTip = (view) => view.tip.matches(":popover-open") && view.tip.hidePopover();

const isMove = (key) => /^(Arrow|Page)|^(Home|End)$/.test(key);

// The cell that a key leads to, if there is one; `wide` means that Ctrl is held with Home or End.
function target(view, cell, key, wide) {
  const r = view.cells.findIndex((row) => row.includes(cell));
  const c = view.cells[r].indexOf(cell);
  const bottom = view.cells.length - 1;
  const moves = {
    ArrowUp: [r - 1, c],
    ArrowDown: [r + 1, c],
    ArrowLeft: [r, c - 1],
    ArrowRight: [r, c + 1],
    Home: [wide ? 0 : r, 0],
    End: [wide ? bottom : r, view.cells[wide ? bottom : r].length - 1],
    PageUp: [0, c],
    PageDown: [bottom, c],
  };
  return moves[key] && view.cells[moves[key][0]]?.[moves[key][1]];
}

// A key has led to a cell, which is picked where it is a `shared` grid.
function arrive(view, next, pick) {
  for (const node of view.table.querySelectorAll("td[tabindex='0']")) node.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  next.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (view.shared) pick(view, next);
}

// Arrive at once, or with the next frame if the last arrival has not been painted yet.
function lead(view, next, pick) {
  if (view.painting) return (view.next = next);
  view.painting = true;
  requestAnimationFrame(() => {
    const { next } = view;
    Object.assign(view, { painting: false, next: null });
    if (next) lead(view, next, pick);
  });
  arrive(view, next, pick);
}

// A key pressed in a cell: arrows and their like lead to another cell; Enter and the space bar
// `pick` this cell, Escape hides the tip.
function onKey(view, focused, event, pick) {
  const cell = view.next ?? focused;
  if (event.key === "Escape") return hideTip(view);
  const isPick = event.key === "Enter" || event.key === " ";
  if (!isPick && !isMove(event.key)) return;
  event.preventDefault();
  if (isPick) return pick(view, cell);
  const next = target(view, cell, event.key, event.ctrlKey || event.metaKey);
  if (next) lead(view, next, pick);
}

// What a reader does with the cells of `view.table`: a click or a key picks a cell, and the pointer
// or the focus on a cell shows its tip.
function listenToCells(view, pick, showTip) {
  const on = (type, act) =>
    view.table.addEventListener(type, (event) => {
      const cell = event.target.closest("td[data-name]");
      if (cell) act(cell, event);
    });
  on("click", (cell) => {
    view.next = null; // rather than where keys lead
    cell.focus();
    pick(view, cell);
  });
  // Not "mouseover", which fires too where a page is drawn under a mouse at rest.
  let under = null;
  on("pointermove", (cell) => cell !== under && showTip(view, (under = cell)));
  on("focusin", (cell) => showTip(view, cell));
  on("keydown", (cell, event) => onKey(view, cell, event, pick));
  view.table.addEventListener("mouseleave", () => {
    under = null;
    hideTip(view);
  });
  view.table.addEventListener("focusout", () => {
    view.next = null;
    hideTip(view);
  });
}
