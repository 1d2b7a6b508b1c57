// A head's kernel or mean attention by offset, drawn from the block of numbers of all heads: the
// head that is pointed at, else the selected one, over the other heads of its layer.

const STEMS = 16; // attention to near tokens is discrete: points on stems up to this offset
const FLOOR = 1e-6; // on a log axis
const MARGIN = { left: 52, right: 14, top: 22, bottom: 40 };
const PARKED = 30; // height of the bar of the attention to the first keys
const RATIO = 74; // height of the panel below, with its gap
const RATIOS = [0.25, 0.5, 1, 2, 4];

const KINDS = {
  kernel: { mean: "kernel", name: "kernel", offset: "offset n − i", of: "K" },
  profile: { mean: "profile", name: "mean attention", offset: "offset k = n − i", of: "P" },
};

const EXACT = 1e-5; // below it a number of 16 bits has no two exact digits
const told = (value) => (value < EXACT ? "below 0.00001" : short(value));
const short = (value) => (value === 0 ? "0" : Number(value.toPrecision(value < 0.01 ? 2 : 3)).toString());
const line = (points) => points.map((at) => at.map((each) => each.toFixed(1)).join(",")).join(" ");

function ticksOf(low, high, log) {
  if (log) {
    const ticks = [];
    for (let power = Math.ceil(Math.log10(low)); 10 ** power <= high * 1.001; power++)
      ticks.push(10 ** power);
    return ticks;
  }
  const step = 10 ** Math.floor(Math.log10(high / 2));
  const wide = [1, 2, 5].map((each) => each * step).find((each) => high / each < 6) ?? 10 * step;
  return Array.from({ length: Math.floor(high / wide + 1e-9) + 1 }, (_, i) => i * wide);
}

const offsetTicks = (last) =>
  [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].filter((each) => each <= last);

// The least and largest of what is drawn, and how offsets and numbers become pixels.
function scalesOf(view, read, shown) {
  const { width, height } = view;
  const last = view.most ?? read.block.starts.at(-1);
  const [logX, logY] = ["offset", "attention"].map((each) => state.log.includes(each));
  const drawn = [shown.high, shown.observed, shown.mean].filter(Boolean);
  const high = Math.max(...drawn.flatMap((row) => [...row.slice(0, shown.count)]), 1e-5) * 1.04;
  const least = Math.min(...drawn.flatMap((row) => [...row.slice(0, shown.count)]));
  const low = logY ? Math.max(FLOOR, Math.min(least, high / 10)) : 0;
  const right = width - MARGIN.right;
  const top = MARGIN.top + (view.parked ? PARKED : 0);
  const bottom = height - MARGIN.bottom - (shown.observed ? RATIO : 0);
  const across = logX ? (k) => Math.log(k + 1) / Math.log(last + 1) : (k) => k / last;
  const up = logY
    ? (v) => Math.log(Math.max(v, low) / low) / Math.log(high / low)
    : (v) => v / high;
  return {
    last, logX, logY, low, high, right, bottom, top,
    x: (k) => MARGIN.left + (6 + across(k) * (right - MARGIN.left - 12)),
    y: (v) => bottom - up(v) * (bottom - top),
  }; // prettier-ignore
}

function shownBy(view, read) {
  const kind = KINDS[view.kind];
  const { starts } = read.block;
  const count = view.most ? starts.filter((each) => each <= view.most).length : starts.length;
  const mean = read.row(kind.mean);
  const error = read.row(`${kind.mean}_error`);
  const moved = (sign) => error && mean.map((each, bin) => Math.max(0, each + sign * error[bin]));
  return {
    count, mean, error,
    low: read.row("kernel_low") ?? moved(-1),
    high: read.row("kernel_high") ?? moved(1),
    observed: view.kind === "kernel" ? read.row("observed") : null,
    observedError: read.row("observed_error"),
  }; // prettier-ignore
}

function axesOf(view, scale, add) {
  const { width } = view;
  for (const k of offsetTicks(scale.last)) {
    if (!scale.logX && k && k < scale.last / 12) continue;
    add("line", { class: "rule", x1: scale.x(k), x2: scale.x(k), y1: scale.top, y2: scale.bottom });
    add("text", { x: scale.x(k), y: view.height - MARGIN.bottom + 16, class: "tick middle" }, k);
  }
  for (const value of ticksOf(scale.low, scale.high, scale.logY)) {
    const y = scale.y(value);
    add("line", { class: "rule", x1: MARGIN.left, x2: scale.right, y1: y, y2: y });
    add("text", { x: MARGIN.left - 6, y: y + 4, class: "tick end" }, short(value));
  }
  const spacing = scale.logX ? ", log scale" : "";
  const name = `${KINDS[view.kind].offset} (tokens${spacing})`;
  add("text", { x: (MARGIN.left + width) / 2, y: view.height - 6, class: "tick middle" }, name);
  const share = `share of attention per token${scale.logY ? " (log scale)" : ""}`;
  add("text", { x: 4, y: scale.top - 11, class: "tick" }, share);
}

// What share of all attention the first keys take, which the curve leaves out.
function parkedBar(view, share, scale, add) {
  const whole = { x: MARGIN.left, y: 16, height: 7 };
  add("text", { x: 4, y: 11, class: "tick" }, `${share.toFixed(2)} of all attention: the ${view.keys}`);
  add("rect", { class: "whole", ...whole, width: scale.right - MARGIN.left });
  add("rect", { class: "parked", ...whole, width: share * (scale.right - MARGIN.left) });
}

// So many near offsets are points: on a long linear axis they would be a block.
const nearOf = (scale) => (scale.x(STEMS) - scale.x(0) < 4 * STEMS ? 0 : STEMS);

// Stems with points for near offsets, where they have room, then a line through the bins' means.
function series(add, kind, row, read, shown, scale, stems) {
  const { starts, offsets } = read.block;
  const near = nearOf(scale);
  const centre = (bin) => (starts[bin] + offsets[bin + 1] - 1) / 2;
  const points = [];
  for (let bin = 0; bin < shown.count; bin++) {
    const at = [scale.x(centre(bin)), scale.y(row[bin])];
    if (starts[bin] >= near) points.push(at);
    else {
      if (stems) add("line", { class: `stem ${kind}`, x1: at[0], x2: at[0], y1: scale.bottom, y2: at[1] });
      add("circle", { class: `point ${kind}`, cx: at[0], cy: at[1], r: stems ? 3.2 : 2.6 });
      if (starts[bin] === near - 1) points.push(at);
    }
  }
  add("polyline", { class: `line ${kind}`, points: line(points) });
}

// What is drawn as a band beyond the stems is a bar beside each of them.
function spread(add, shown, read, scale, along) {
  const far = read.block.starts.findIndex((each) => each >= Math.max(0, nearOf(scale) - 1));
  const [low, high] = [along(shown.low), along(shown.high)];
  const near = far < 0 ? shown.count : Math.min(far, shown.count);
  for (let bin = 0; bin < near; bin++) {
    const [x, top] = high[bin];
    add("rect", { class: "band", x: x - 4, width: 8, y: top, height: Math.max(0, low[bin][1] - top) });
  }
  add("polygon", { class: "band", points: line([...low.slice(near), ...high.slice(near).reverse()]) });
}

function ratioPanel(view, read, shown, scale, add) {
  const [top, bottom] = [scale.bottom + 26, view.height - MARGIN.bottom];
  const y = (ratio) =>
    (top + bottom) / 2 - (Math.log2(Math.min(4, Math.max(0.25, ratio))) / 4) * (bottom - top);
  for (const each of RATIOS) {
    const kind = each === 1 ? "rule one" : "rule";
    add("line", { class: kind, x1: MARGIN.left, x2: scale.right, y1: y(each), y2: y(each) });
    if (Math.log2(each) % 2 === 0)
      add("text", { x: MARGIN.left - 6, y: y(each) + 4, class: "tick end" }, `${each}×`);
  }
  add("text", { x: 4, y: top - 8, class: "tick" }, "observed ÷ kernel (log scale)");
  const ratio = shown.mean.map((each, bin) => (each > FLOOR ? shown.observed[bin] / each : NaN));
  const { starts, offsets } = read.block;
  const points = [];
  for (let bin = 0; bin < shown.count; bin++)
    if (ratio[bin] > 0)
      points.push([scale.x((starts[bin] + offsets[bin + 1] - 1) / 2), y(ratio[bin])]);
  add("polyline", { class: "line observed", points: line(points) });
}

function sentenceAt(view, read, shown, bin) {
  const { starts, offsets } = read.block;
  const [first, last] = [starts[bin], offsets[bin + 1] - 1];
  const where = first === last ? `offset ${first}` : `offsets ${first} to ${last}, mean`;
  const wrong = (error) => (error?.[bin] > 0 ? ` ± ${short(Number(error[bin].toPrecision(2)))}` : "");
  const name = KINDS[view.kind].name;
  const parts = [`${where}: ${name} ${told(shown.mean[bin])}${wrong(shown.error)}`];
  if (shown.observed) parts.push(`observed ${told(shown.observed[bin])}${wrong(shown.observedError)}`);
  return parts.join(", ");
}

function paintCurve(view) {
  const read = reading(view.kind, undefined, view.own);
  const { width, height, bin, most } = view;
  const parked = read && view.parked?.[read.layer]?.[read.head];
  const drawing = [parked, read?.name, read?.block.n, read?.block.run, state.cell, state.log, bin, most, width, height];
  if (String(drawing) === view.drawing) return;
  view.drawing = String(drawing);
  view.title.textContent = read
    ? `${read.name}${read.block.n === undefined ? "" : ` at n = ${read.block.n}`}`
    : state.cell;
  view.root.classList.toggle("waiting", !read);
  if (!read) return (view.said.textContent = "Waiting for the numbers of this position.");
  const [shown, kind] = [shownBy(view, read), KINDS[view.kind]];
  const scale = scalesOf(view, read, shown);
  const { starts, offsets } = read.block;
  const centre = (bin) => scale.x((starts[bin] + offsets[bin + 1] - 1) / 2);
  const nodes = [];
  const add = (tag, attributes, text = "") => {
    const node = svgNode(tag, attributes);
    node.textContent = text;
    nodes.push(node);
  };
  axesOf(view, scale, add);
  if (Number.isFinite(parked)) parkedBar(view, parked, scale, add);
  const bins = [...Array(shown.count).keys()];
  const along = (row) => bins.map((bin) => [centre(bin), Math.max(scale.top - 4, scale.y(row[bin]))]);
  for (let other = 0; other < read.block.heads; other++)
    if (other !== read.head)
      add("polyline", { class: "line other", points: line(along(read.row(kind.mean, other))) });
  if (shown.high) spread(add, shown, read, scale, along);
  if (shown.observed) series(add, "observed", shown.observed, read, shown, scale, false);
  series(add, "kernel", shown.mean, read, shown, scale, true);
  if (shown.observed) ratioPanel(view, read, shown, scale, add);
  if (view.bin !== null && view.bin < shown.count) {
    const x = centre(view.bin);
    add("line", { class: "cursor", x1: x, x2: x, y1: scale.top, y2: view.height - MARGIN.bottom });
  }
  view.svg.replaceChildren(...nodes);
  view.svg.setAttribute("aria-label", `${kind.name} of ${read.name} by offset`);
  view.said.textContent =
    view.bin === null || view.bin >= shown.count ? "" : sentenceAt(view, read, shown, view.bin);
  view.centre = centre;
  view.count = shown.count;
  for (const [name, box] of view.boxes)
    box.checked = state.log.includes(name);
}

// Which bin lies nearest to where the pointer is.
function point(view, event) {
  const x = event.offsetX;
  let best = null;
  for (let bin = 0; bin < (view.count ?? 0); bin++)
    if (best === null || Math.abs(view.centre(bin) - x) < Math.abs(view.centre(best) - x)) best = bin;
  view.bin = best;
  paintCurve(view);
}

function buildCurve(root, data) {
  const title = make("b", { class: "name" });
  const said = make("output", { class: "said" });
  const svg = svgNode("svg", { role: "img" });
  const legend = make("div", { class: "legend" });
  const entry = (kind, text) => {
    const each = make("span", { class: `entry ${kind}` });
    each.append(make("i"), text);
    legend.append(each);
  };
  entry("kernel", KINDS[data.kind].name);
  entry("band", data.band);
  if (data.kind === "kernel") entry("observed", "observed attention");
  entry("other", "other heads of the layer");
  const boxes = ["offset", "attention"].map((name) => {
    const box = make("input", { type: "checkbox" });
    const label = make("label");
    label.append(box, `log ${name}`);
    legend.append(label);
    box.addEventListener("change", () => {
      const kept = state.log.filter((each) => each !== name);
      decide({ log: box.checked ? [...kept, name] : kept });
    });
    return [name, box];
  });
  const head = make("div", { class: "head" });
  head.append(title, said);
  root.replaceChildren(head, svg, legend);
  const view = { root, title, said, svg, boxes, bin: null, kind: data.kind };
  svg.addEventListener("pointermove", (event) => point(view, event));
  svg.addEventListener("pointerleave", () => {
    view.bin = null;
    paintCurve(view);
  });
  new ResizeObserver(() => {
    const box = svg.getBoundingClientRect();
    if (box.width === view.width && box.height === view.height) return;
    Object.assign(view, { width: box.width, height: box.height });
    svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    if (box.width) paintCurve(view);
  }).observe(svg);
  return view;
}

parts.curve = ({ parentElement, data }) => {
  let view = views.get(parentElement);
  if (!view) {
    view = buildCurve(parentElement.querySelector(".curve"), data);
    views.set(parentElement, view);
  }
  Object.assign(view, { own: data.block, most: data.most, parked: data.parked, keys: data.keys });
  need(data.block);
  return () => view.width && paintCurve(view);
};
