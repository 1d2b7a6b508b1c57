// One head on a text: its pattern as a map, and the text itself, whose tokens are shaded by the
// attention of the token under the pointer or the focus. Python sends two bytes a share, row after
// row up to the diagonal; the browser sends the picked token's position as the state `token`.

const DENSEST = 0.7; // opacity of a whole share: the page's ink still reads on it
const NAMED = 4; // tokens that the line above the text names
const LEAST = 0.005;
const LARGEST = 460;
const instances = new WeakMap();

const before = (n, first) => (n * (n + 1) - first * (first + 1)) / 2;
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

const full = (one, top) => Math.sqrt(Math.min(1, one / top));

// In running text, spaces at a token's ends are shown as spaces, unless the token has nothing else.
// They stand outside the token's box, because a line break at a space would cut the box in two.
function running(token) {
  const [, left, word, right] = /^(␣*)(.*?)(␣*)$/su.exec(token);
  return word ? [left && " ", word, right && " "] : ["", token, ""];
}

function share(view, n, i) {
  const { first, rows } = view.data;
  if (n < first || n >= first + rows || i > n) return undefined;
  return view.shares[before(n, first) + i] / 65535;
}

function build(root) {
  const map = make("canvas", { class: "map", "aria-hidden": "true" });
  const lines = make("canvas", { class: "lines", "aria-hidden": "true" });
  const square = make("div", { class: "square" });
  const told = make("div", { class: "told", "aria-live": "polite" });
  const words = make("div", { class: "words", role: "listbox", "aria-label": "Tokens of the text" });
  const text = make("div", { class: "text" });
  const both = make("div", { class: "both" });
  const legend = make("div", { class: "legend" });
  legend.append(make("span", { class: "ramp", "aria-hidden": "true" }));
  const scale = make("span");
  legend.append(scale);
  square.append(map, lines);
  text.append(told, words);
  both.append(square, text);
  root.replaceChildren(both, legend);
  const view = { root, map, lines, square, told, words, scale, tokens: [], active: undefined };
  listen(view);
  new ResizeObserver(() => paintMap(view)).observe(square);
  return view;
}

function fill(view) {
  const nodes = [];
  view.tokens = view.data.tokens.map((token, at) => {
    const [left, word, right] = running(token);
    const node = make("span", { role: "option", tabindex: "-1", "data-at": at }, word);
    node.setAttribute("aria-label", `${at} ${token}`);
    nodes.push(left, node, right);
    if (token.includes("⏎")) nodes.push(make("br"));
    return node;
  });
  view.words.replaceChildren(...nodes);
}

function paintMap(view) {
  const { data, map, lines, square } = view;
  if (!data || !square.clientWidth) return;
  const wide = Math.min(LARGEST, square.clientWidth);
  const high = Math.max(40, Math.round((wide * data.rows) / data.tokens.length));
  const ratio = window.devicePixelRatio || 1;
  for (const canvas of [map, lines]) {
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
  }
  square.style.height = `${high}px`;
  const brush = map.getContext("2d");
  brush.imageSmoothingEnabled = data.tokens.length > wide * ratio;
  brush.imageSmoothingQuality = "high";
  brush.drawImage(view.picture, 0, 0, map.width, map.height);
  point(view);
}

function picture(view) {
  const { first, rows, tokens } = view.data;
  const image = new ImageData(tokens.length, rows);
  for (let n = first; n < first + rows; n++) {
    for (let i = 0; i <= n; i++) {
      const at = 4 * ((n - first) * tokens.length + i);
      image.data.set(INK, at);
      image.data[at + 3] = 20 + 235 * full(share(view, n, i), view.data.top);
    }
  }
  const canvas = new OffscreenCanvas(tokens.length, rows);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
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
  if (data.direction === "incoming") brush.strokeRect(at * x, 0, Math.max(x, 2), lines.height);
  else brush.strokeRect(0, (at - data.first) * y, lines.width, Math.max(y, 2));
}

const active = (view) => view.active ?? view.data.selected;

function shade(view) {
  const { data, tokens } = view;
  const at = active(view);
  const incoming = data.direction === "incoming";
  const found = [];
  tokens.forEach((node, other) => {
    const one = incoming ? share(view, other, at) : share(view, at, other);
    const alpha = one === undefined ? 0 : DENSEST * full(one, data.top);
    node.style.background = alpha > 0.02 ? `rgba(${INK.join(",")},${alpha.toFixed(3)})` : "";
    node.classList.toggle("active", other === at);
    node.classList.toggle("out", one === undefined);
    if (one > LEAST) found.push([one, other]);
  });
  found.sort((a, b) => b[0] - a[0]);
  const name = (i) => `${i} ‘${data.tokens[i]}’`;
  const told = found.slice(0, NAMED).map(([one, i]) => `${name(i)} ${percent(one)}`);
  const most = told.length ? told.join(", ") : "no token in particular";
  const kept = at >= data.first && at < data.first + data.rows;
  const last = data.first + data.rows - 1;
  const text = incoming
    ? `${name(at)} gets most attention from ${most}.`
    : kept
      ? `${name(at)} attends most to ${most}.`
      : `Queries ${data.first} to ${last} are shown: press Enter on ${name(at)} for those near it.`;
  view.told.textContent = text;
  point(view);
}

function settle(view, at) {
  view.active = at;
  shade(view);
}

function choose(view, at) {
  view.active = undefined;
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

function listen(view) {
  const { words, lines } = view;
  const at = (event) => Number(event.target.closest("[data-at]")?.dataset.at ?? NaN);
  const on = (type, act) =>
    words.addEventListener(type, (event) => {
      const token = at(event);
      if (!Number.isNaN(token)) act(token, event);
    });
  on("mouseover", (token) => settle(view, token));
  on("focusin", (token) => settle(view, token));
  on("click", (token) => {
    view.tokens[token].focus();
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
  const place = (event) => {
    const box = lines.getBoundingClientRect();
    const { tokens, rows, first } = view.data;
    const i = Math.floor(((event.clientX - box.left) / box.width) * tokens.length);
    const n = first + Math.floor(((event.clientY - box.top) / box.height) * rows);
    return view.data.direction === "incoming" ? i : n;
  };
  const inside = (token) => Math.max(0, Math.min(view.tokens.length - 1, token));
  lines.addEventListener("mousemove", (event) => settle(view, inside(place(event))));
  lines.addEventListener("mouseleave", () => settle(view, undefined));
  lines.addEventListener("click", (event) => choose(view, inside(place(event))));
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

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
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
    view.active = undefined;
  }
  if (view.drawn !== data.cells + data.first) {
    view.shares = new Uint16Array(bytes(data.cells).buffer);
    view.picture = picture(view);
    view.scale.textContent = scaleText(data.top);
    view.drawn = data.cells + data.first;
    mark(view);
    paintMap(view);
  } else mark(view);
}
