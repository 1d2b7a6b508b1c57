// One head on a text: its pattern as a map with the tokens at both axes, and the text itself, whose
// tokens are shaded by the attention of the token under the pointer or the focus; or the tokens
// twice, queries left and keys right, with lines between them. The data hold two bytes a share, row
// after row up to the diagonal, or a function `value`; the picked token's position is sent as `token`.

const DENSEST = 0.7; // opacity of a whole share: the page's ink still reads on it
const NAMED = 4; // tokens that the line above the text names
const LEAST = 0.005;
const LARGEST = 460;
const MARGIN = 74; // of the map, for the names of tokens
const PITCH = 13; // between two names
const LINE = 22; // a token's line beside the lines between tokens
const THIN = 0.12; // lines that are less full are left out
const instances = new WeakMap();

const before = (n, first) => (n * (n + 1) - first * (first + 1)) / 2;
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

// In running text, spaces at a token's ends are shown as spaces, unless the token has nothing else.
// They stand outside the token's box, because a line break at a space would cut the box in two.
function running(token) {
  const [, left, word, right] = /^(␣*)(.*?)(␣*)$/su.exec(token);
  return word ? [left && " ", word, right && " "] : ["", token, ""];
}

// What a query gives to a key; undefined where the one is not kept, or does not see the other.
function number(view, n, i) {
  const { first, rows } = view.data;
  return n < first || n >= first + rows ? undefined : view.value(n, i);
}

function level(view, n, i) {
  const { top, signed, causal } = view.data;
  const one = number(view, n, i);
  return one === undefined || (causal && i > n) ? undefined : fullness(one, top, signed);
}

const isShare = (view) => !view.data.unit;
const told = (view, one) => {
  if (view.data.cells) return String(Number(one.toFixed(4))); // as fine as two bytes are
  return String(Number(one.toPrecision(4)));
};
const nameOf = (view, at) => `${at} ‘${view.data.tokens[at]}’`;

function build(root) {
  const map = make("canvas", { class: "map", "aria-hidden": "true" });
  const lines = make("canvas", { class: "lines", "aria-hidden": "true" });
  const axes = make("div", { class: "axes", "aria-hidden": "true" });
  const square = make("div", { class: "square" });
  const said = make("div", { class: "told", "aria-live": "polite" });
  const words = make("div", { class: "words", role: "listbox", "aria-label": "Tokens of the text" });
  const bundle = make("canvas", { class: "bundle", "aria-hidden": "true" });
  const text = make("div", { class: "text" });
  const both = make("div", { class: "both" });
  const legend = make("div", { class: "legend" });
  const scale = make("span");
  const tip = make("div", { class: "tip", popover: "manual", "aria-hidden": "true" });
  const view = { root, map, lines, axes, square, told: said, words, bundle, scale, tip };
  Object.assign(view, { tokens: [], keys: [], form: "Text", active: undefined });
  const forms = choice("How the tokens are shown", ["Text", "Lines"], view.form, (form) => {
    view.form = form;
    fill(view);
    words.scrollTop = form === "Text" ? 0 : (active(view) + 1.5) * LINE - words.clientHeight / 2;
    mark(view);
  });
  view.ramp = make("span", { class: "ramp", "aria-hidden": "true" });
  legend.append(view.ramp, scale);
  square.append(map, lines, axes);
  text.append(forms, said, words);
  both.append(square, text);
  root.replaceChildren(both, legend, tip);
  listen(view);
  new ResizeObserver(() => paintMap(view)).observe(square);
  new ResizeObserver(() => paintBundle(view)).observe(words);
  words.addEventListener("scroll", () => paintBundle(view));
  return view;
}

function fill(view) {
  const { data, words } = view;
  const isText = view.form === "Text";
  const option = (at, shown, more) => {
    const node = make("span", { "data-at": at, ...more }, shown);
    node.setAttribute("aria-label", `${at} ${data.tokens[at]}`);
    return node;
  };
  const query = { role: "option", tabindex: "-1" };
  const shown = data.tokens.map(running);
  view.tokens = shown.map(([, word], at) => option(at, word, query));
  view.keys = isText ? view.tokens : shown.map(([, word], at) => option(at, word, { "data-key": "" }));
  words.classList.toggle("linked", !isText);
  if (isText) {
    const nodes = shown.flatMap(([left, , right], at) => {
      const end = data.tokens[at].includes("⏎") ? [make("br")] : [];
      return [left, view.tokens[at], right, ...end];
    });
    words.replaceChildren(...nodes);
    return;
  }
  const column = (nodes, more) => {
    const found = make("div", { class: "column", ...more });
    found.append(...nodes);
    return found;
  };
  const middle = make("div", { class: "middle" });
  middle.append(view.bundle);
  const hidden = { "aria-hidden": "true" };
  words.replaceChildren(column(view.tokens, {}), middle, column(view.keys, hidden));
}

function paintMap(view) {
  const { data, map, lines, square } = view;
  const room = square.clientWidth - MARGIN;
  if (!data || room <= 0) return;
  const wide = Math.min(LARGEST, room);
  const high = Math.max(40, Math.round((wide * data.rows) / data.tokens.length));
  const ratio = window.devicePixelRatio || 1;
  for (const canvas of [map, lines]) {
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
  }
  square.style.height = `${high + MARGIN}px`;
  const brush = map.getContext("2d");
  brush.imageSmoothingEnabled = data.tokens.length > wide * ratio;
  brush.imageSmoothingQuality = "high";
  brush.drawImage(view.picture, 0, 0, map.width, map.height);
  nameAxes(view, wide, high);
  point(view);
}

// Names of tokens at both axes: of all of them, or of as many as there is room for.
function nameAxes(view, wide, high) {
  const { first, rows, tokens } = view.data;
  const nodes = [make("span", { class: "corner" }, "query ↑\nkey →")];
  for (const [kind, from, count, size] of [
    ["query", first, rows, high],
    ["key", 0, tokens.length, wide],
  ]) {
    const step = Math.ceil((PITCH * count) / size);
    for (let at = 0; at < count; at += step) {
      const [, word] = running(tokens[from + at]);
      const name = step > 1 ? `${from + at} ${word}` : word;
      const node = make("span", { class: kind }, name);
      node.style[kind === "query" ? "top" : "left"] = `${((at + 0.5) * size) / count}px`;
      if (kind === "key") node.style.top = `${high + 4}px`;
      nodes.push(node);
    }
  }
  nodes[0].style.top = `${high + 6}px`;
  view.axes.replaceChildren(...nodes);
}

// The row or the column of the active token on the map.
function point(view) {
  const { lines, data } = view;
  const brush = lines.getContext("2d");
  brush.clearRect(0, 0, lines.width, lines.height);
  const at = active(view);
  const ratio = window.devicePixelRatio || 1;
  const [x, y] = [lines.width / data.tokens.length, lines.height / data.rows];
  brush.strokeStyle = getComputedStyle(view.root).color;
  brush.lineWidth = 1.5 * ratio;
  if (isIncoming(view)) brush.strokeRect(at * x, 0, Math.max(x, 2), lines.height);
  else brush.strokeRect(0, (at - data.first) * y, lines.width, Math.max(y, 2));
}

// Lines from the queries in sight to their keys: of the active token alone while one points at it.
function paintBundle(view) {
  const { bundle, words, data } = view;
  if (view.form === "Text" || !bundle.parentElement?.clientWidth) return;
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [bundle.parentElement.clientWidth, words.clientHeight];
  bundle.width = wide * ratio;
  bundle.height = high * ratio;
  bundle.style.width = `${wide}px`;
  bundle.style.height = `${high}px`;
  const brush = bundle.getContext("2d");
  brush.scale(ratio, ratio);
  const top = words.scrollTop;
  const y = (at) => (at + 1.5) * LINE - top; // the first line is the heading
  const draw = (n, i, strength) => {
    const one = level(view, n, i);
    if (one === undefined || Math.abs(one) < THIN) return;
    brush.strokeStyle = `rgba(${inkOf(one, data.signed).join(",")},${strength * Math.abs(one)})`;
    brush.lineWidth = 0.5 + 4 * Math.abs(one);
    brush.beginPath();
    brush.moveTo(0, y(n));
    brush.bezierCurveTo(wide / 2, y(n), wide / 2, y(i), wide, y(i));
    brush.stroke();
  };
  const count = data.tokens.length;
  const from = Math.max(0, Math.floor(top / LINE) - 1);
  const to = Math.min(count, Math.ceil((top + high) / LINE));
  if (view.active === undefined)
    for (let n = from; n < to; n++) for (let i = 0; i < count; i++) draw(n, i, 0.35);
  const at = active(view);
  for (let other = 0; other < count; other++)
    if (isIncoming(view)) draw(other, at, 1);
    else draw(at, other, 1);
}

const active = (view) => view.active ?? view.data.selected;
const isIncoming = (view) => view.side ?? view.data.direction === "incoming";

function shade(view) {
  const { data, tokens, keys } = view;
  const at = active(view);
  const incoming = isIncoming(view);
  const found = [];
  for (const node of [...tokens, ...keys]) {
    node.style.background = "";
    node.classList.remove("active", "out");
  }
  (incoming ? tokens : keys).forEach((node, other) => {
    const [n, i] = incoming ? [other, at] : [at, other];
    const one = level(view, n, i);
    const alpha = one === undefined ? 0 : DENSEST * Math.abs(one);
    if (alpha > 0.02)
      node.style.background = `rgba(${inkOf(one, data.signed).join(",")},${alpha.toFixed(3)})`;
    node.classList.toggle("out", one === undefined);
    if (one) found.push([number(view, n, i), other]);
  });
  (incoming ? keys : tokens)[at].classList.add("active");
  found.sort((a, b) => Math.abs(b[0]) - Math.abs(a[0]));
  view.told.textContent = sentence(view, at, found, incoming);
  point(view);
  paintBundle(view);
}

function sentence(view, at, found, incoming) {
  const { first, rows } = view.data;
  const name = nameOf(view, at);
  if (!incoming && (at < first || at >= first + rows))
    return `Queries ${first} to ${first + rows - 1} are shown: press Enter on ${name} for those near it.`;
  const shown = isShare(view) ? found.filter(([one]) => one > LEAST) : found;
  const print = (one) => (isShare(view) ? percent(one) : told(view, one));
  const list = shown.slice(0, NAMED).map(([one, i]) => `${nameOf(view, i)} ${print(one)}`);
  if (!isShare(view))
    return `${incoming ? "Key" : "Query"} ${name}, strongest ${incoming ? "queries" : "keys"}: ${list.join(", ") || "none"}.`;
  const most = list.join(", ") || "no token in particular";
  return incoming ? `${name} gets most attention from ${most}.` : `${name} attends most to ${most}.`;
}

function settle(view, at, side) {
  view.active = at;
  view.side = side;
  shade(view);
}

function choose(view, at) {
  view.active = view.side = undefined;
  view.data = { ...view.data, selected: at };
  mark(view);
  view.send("token", at);
}

function mark(view) {
  const { selected } = view.data;
  const focused = view.tokens.find((node) => node.matches(":focus"));
  view.tokens.forEach((node, at) => {
    node.setAttribute("aria-selected", String(at === selected));
    node.tabIndex = node === (focused ?? view.tokens[selected]) ? 0 : -1;
  });
  shade(view);
}

// The number of the cell of the map under the pointer.
function showNumber(view, n, i) {
  const box = view.lines.getBoundingClientRect();
  const { first, rows, tokens } = view.data;
  const [wide, high] = [box.width / tokens.length, box.height / rows];
  const at = new DOMRect(box.left + i * wide, box.top + (n - first) * high, wide, high);
  const one = number(view, n, i);
  const text = one === undefined ? "masked" : told(view, one);
  const where = `query ${nameOf(view, n)} → key ${nameOf(view, i)}: `;
  openTip(view, { getBoundingClientRect: () => at }, where, make("b", {}, text));
}

function listen(view) {
  const { words, lines } = view;
  const at = (event) => Number(event.target.closest("[data-at]")?.dataset.at ?? NaN);
  // A token on the right is a key, one on the left a query; in the text it is what is asked for.
  const side = (event) => (view.form === "Text" ? undefined : "key" in event.target.dataset);
  const on = (type, act) =>
    words.addEventListener(type, (event) => {
      const token = at(event);
      if (!Number.isNaN(token)) act(token, event);
    });
  on("mouseover", (token, event) => settle(view, token, side(event)));
  on("focusin", (token, event) => settle(view, token, side(event)));
  on("click", (token) => {
    view.tokens[token].focus({ preventScroll: true });
    choose(view, token);
  });
  on("keydown", (token, event) => {
    const last = view.tokens.length - 1;
    const moves = { ArrowLeft: token - 1, ArrowRight: token + 1, Home: 0, End: last };
    moves.ArrowUp = beside(view, token, -1);
    moves.ArrowDown = beside(view, token, 1);
    const isPick = event.key === "Enter" || event.key === " ";
    if (!isPick && !(event.key in moves)) return;
    event.preventDefault();
    if (isPick) return choose(view, token);
    const next = view.tokens[Math.max(0, Math.min(last, moves[event.key]))];
    view.tokens[token].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  words.addEventListener("mouseleave", () => settle(view, undefined));
  words.addEventListener("focusout", () => settle(view, undefined));
  const cell = (event) => {
    const box = lines.getBoundingClientRect();
    const { tokens, rows, first } = view.data;
    const inside = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
    const i = inside((event.clientX - box.left) / box.width, tokens.length);
    return [first + inside((event.clientY - box.top) / box.height, rows), i];
  };
  lines.addEventListener("mousemove", (event) => {
    const [n, i] = cell(event);
    settle(view, isIncoming(view) ? i : n);
    showNumber(view, n, i);
  });
  lines.addEventListener("mouseleave", () => {
    hideTip(view);
    settle(view, undefined);
  });
  lines.addEventListener("click", (event) => choose(view, cell(event)[isIncoming(view) ? 1 : 0]));
}

// The token above or below: the nearest of the next line.
function beside(view, token, way) {
  const here = view.tokens[token].getBoundingClientRect();
  const middle = here.left + here.width / 2;
  let best = token;
  let line;
  for (let at = token + way; at >= 0 && at < view.tokens.length; at += way) {
    const box = view.tokens[at].getBoundingClientRect();
    if (Math.abs(box.top - here.top) < 4) continue;
    line ??= box.top;
    if (Math.abs(box.top - line) > 4) break;
    const distance = Math.abs(box.left + box.width / 2 - middle);
    if (best === token || distance < view.gap) [best, view.gap] = [at, distance];
  }
  return best;
}

function tokens({ data, parentElement, setTriggerValue }) {
  let view = instances.get(parentElement);
  if (!view) {
    view = build(parentElement.querySelector(".attention"));
    instances.set(parentElement, view);
  }
  view.send = setTriggerValue;
  view.data = data;
  const words = JSON.stringify(data.tokens);
  if (view.written !== words) {
    fill(view);
    view.written = words;
    view.active = view.side = undefined;
  }
  const key = data.key ?? data.cells + data.first;
  if (view.drawn !== key) {
    const { first, rows } = data;
    const shares = data.cells && new Uint16Array(bytes(data.cells).buffer);
    view.value =
      data.value ?? ((n, i) => (i > n ? undefined : shares[before(n, first) + i] / 65535));
    const of = (n, i) => level(view, first + n, i);
    view.picture = dots(data.tokens.length, rows, of, data.signed, 20);
    view.ramp.classList.toggle("diverging", Boolean(data.signed));
    view.scale.textContent = scaleText(data);
    view.drawn = key;
    mark(view);
    paintMap(view);
  } else mark(view);
  return () => hideTip(view);
}
