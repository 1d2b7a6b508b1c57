// What the parts of the page share: all of them are this one script, so what stands here exists
// once. The reader chooses in the browser, every part follows at once, and the server follows when
// the hand rests.

const REST = 150; // milliseconds without a choice after which the server is told
const NEAR = 300; // pixels below the window from which the rest of a page is wanted
const MAX_BYTES = 4e6; // of blocks fetched ahead of need, after each choice

const state = { rev: 0, cell: "", query: 0, log: [], seen: null }; // `seen`: pointed at
let given = { run: "", blocks: {}, pinned: [] }; // what the server said last
let drawn = null; // what the server's figures have been drawn for
let tellServer = () => {};
let untold = {}; // what the reader has chosen and the server has not followed yet
let resting = 0;
let frame = 0;
let again = false;
const followers = new Set(); // functions that draw the state
const grids = new Set(); // of all heads; those that are gone too, until the next key

function drawAll() {
  for (const draw of followers) draw();
  const behind = drawn && (drawn.cell !== state.cell || drawn.query !== state.query);
  document.documentElement.toggleAttribute("data-behind", Boolean(behind));
  document.documentElement.toggleAttribute("data-seen", Boolean(state.seen));
}

// A choice is drawn at once, and however many more fall in the same frame, once more.
function redraw() {
  if (frame) return (again = true);
  drawAll();
  frame = requestAnimationFrame(() => {
    frame = 0;
    if (again) drawAll();
    again = false;
  });
}

function choose(change) {
  Object.assign(state, change);
  redraw();
}

// A choice of the reader's; the server alone follows `more`. `rev` counts them: the server returns the
// last one that it has followed.
function decide(change, more = {}) {
  for (const [name, value] of Object.entries({ ...change, ...more }))
    if (value !== undefined) untold[name] = [state.rev + 1, value];
  clearTimeout(resting);
  resting = setTimeout(() => {
    tellServer("choice", { ...stillUntold(), rev: state.rev, far: isFar() });
  }, REST);
  choose({ seen: null, ...change, rev: state.rev + 1 });
  if (change.query !== undefined) need(given.blocks[state.query]);
}

const stillUntold = () =>
  Object.fromEntries(Object.entries(untold).map(([name, [, value]]) => [name, value]));

// The grid on the page, if there is one in sight, and its cell of the selected head.
function walkable() {
  for (const view of grids) if (!view.root.isConnected) grids.delete(view);
  const view = [...grids].find(({ scroller }) => scroller.clientWidth > 0);
  return view ? [view, view.byName.get(state.cell)] : [];
}

const views = new WeakMap(); // the place of a part -> what it keeps there

const svgNode = (tag, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

const placeOf = (name) => /^L(\d+)H(\d+)$/.exec(name).slice(1).map(Number);

const blocks = new Map(); // key -> numbers of all heads
const fetched = new Map(); // key -> promise

function float16(code) {
  const [power, part] = [(code >> 10) & 31, code & 1023];
  const value = power ? 2 ** (power - 25) * (1024 + part) : part * 2 ** -24;
  return power === 31 ? NaN : code >> 15 ? -value : value;
}

function readBlock(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const numbers = Float32Array.from(new Uint16Array(buffer, 4 + length), float16);
  const [layers, heads] = header.shape;
  const bins = header.offsets.length - 1;
  const row = (name, layer, head) => {
    const value = header.names.indexOf(name);
    const at = ((value * layers + layer) * heads + head) * bins;
    return value < 0 ? null : numbers.subarray(at, at + bins);
  };
  return { ...header, layers, heads, bins, starts: header.offsets.slice(0, -1), row };
}

// Fetch a block, unless it is there or under way.
function need(key) {
  if (!key || fetched.has(key)) return fetched.get(key);
  const asked = fetch(new URL(`numbers/${key}`, location.href))
    .then(async (answer) => {
      if (!answer.ok) throw new Error(await answer.text());
      const buffer = await answer.arrayBuffer();
      blocks.set(key, readBlock(buffer));
      redraw();
      return buffer.byteLength;
    })
    .catch(() => fetched.delete(key) && 0); // asked for again by the next run of the script
  fetched.set(key, asked);
  return asked;
}

// The other positions, nearest first, one after the other, until the run is another one.
async function fetchAhead() {
  let left = MAX_BYTES;
  const { run } = given;
  const nearest = Object.keys(given.blocks).sort(
    (a, b) => Math.abs(a - state.query) - Math.abs(b - state.query),
  );
  for (const query of nearest) {
    if (left <= 0 || run !== given.run) return;
    const key = given.blocks[query];
    const there = fetched.has(key); // or under way
    const bytes = await need(key);
    left -= there ? 0 : bytes;
  }
}

// The name of a head and its numbers, from one block: they cannot disagree.
function reading(kind, name = state.seen ?? state.cell, own = null) {
  const key = own ?? (kind === "profile" ? given.profile : given.blocks[state.query]);
  const block = blocks.get(key);
  if (!block) need(key);
  if (!block || !name) return null;
  const [layer, head] = placeOf(name);
  if (layer >= block.layers || head >= block.heads) return null;
  const row = (value, other = head) => block.row(value, layer, other);
  return { block, name, layer, head, row };
}

// The first part of a page: what the server has chosen, and where the numbers are.
function followServer({ data, setStateValue }) {
  const other = data.run !== given.run;
  if (other) for (const kept of [blocks, fetched]) kept.clear();
  given = data;
  tellServer = setStateValue;
  untold = Object.fromEntries(Object.entries(untold).filter(([, [rev]]) => rev > data.rev));
  if (other || data.rev >= state.rev)
    choose({
      rev: Math.max(state.rev, data.rev),
      cell: data.cell,
      query: data.query,
      log: data.log,
      ...stillUntold(),
      seen: other ? null : state.seen,
    });
  need(given.blocks[state.query]);
  need(given.profile);
  setTimeout(fetchAhead, 1000);
  redraw();
}

// The last part of a page: the figures above it have been drawn for this head and position.
function endRun({ data }) {
  if (drawn && drawn.page !== data.page) {
    closeMenu();
    choose({ seen: null });
  }
  drawn = data;
  // The note for a first reader is there at the first visit alone: the server reads the cookie.
  document.cookie = "introduction=seen;max-age=31536000;SameSite=Lax";
  given = { ...given, profile: data.profile, blocks: { ...given.blocks, ...data.blocks } };
  need(given.blocks[state.query]);
  need(given.profile);
  markSection(data.section);
  redraw();
}

const isFar = () =>
  document.querySelector(".st-key-rest")?.getBoundingClientRect().top > innerHeight + NEAR;

// What stands in for the rest of a page, until the reader comes near it, looks for a word in the
// page, opens the list of its figures, or prints it.
let asking = new AbortController();
function askForRest({ parentElement, setTriggerValue }) {
  asking.abort();
  const { signal } = (asking = new AbortController());
  const ask = () => {
    asking.abort();
    setTriggerValue("near", true);
  };
  const near = new IntersectionObserver(
    (seen) => seen.some(({ isIntersecting }) => isIntersecting) && ask(),
    { rootMargin: `${NEAR}px`, scrollMargin: `${NEAR}px` },
  );
  near.observe(parentElement.querySelector(".rest"));
  signal.addEventListener("abort", () => near.disconnect());
  const sought = ({ ctrlKey, metaKey, key }) => (ctrlKey || metaKey) && /^[fp]$/i.test(key);
  addEventListener("keydown", (pressed) => sought(pressed) && ask(), { signal });
  const listed = ({ target }) => target.closest(".st-key-contents");
  addEventListener("pointerdown", (pressed) => listed(pressed) && ask(), { signal });
}

// Streamlit's bar marks the open page in its list, but not the closed list.
function markSection(section) {
  for (const button of document.querySelectorAll("[data-testid=stTopNavSection]"))
    if (button.textContent === section) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
}

// On a phone the menu lies over the page: it closes once a page was chosen.
function closeMenu() {
  if (matchMedia("(max-width: 768px)").matches)
    document.querySelector("[data-testid=stSidebarCollapseButton] button")?.click();
}

const parts = { state: followServer, told: endRun, rest: askForRest };
const drawing = new WeakMap(); // the place of a part -> the function that draws it

export default function (component) {
  const { data, parentElement } = component;
  followers.delete(drawing.get(parentElement));
  const draw = parts[data.part](component);
  if (draw) {
    drawing.set(parentElement, draw);
    followers.add(draw);
    draw();
  }
  // Of two calls in short succession, the first may be ended after the second has begun.
  return () => parentElement.isConnected || followers.delete(drawing.get(parentElement));
}
