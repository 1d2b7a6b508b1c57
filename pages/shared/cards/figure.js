// The head of a card, and a Plotly figure: drawn when it comes near, or else when the browser has
// nothing to do. What is in a head is other people's text: it is set as text, never as HTML.

const NEAR = "400px";
const NARROW = 480; // pixels
const TOUCHED = matchMedia("(hover: none)"); // there Plotly's bar would stand over titles
const REST = 300; // milliseconds without a new figure
const MENU = "About this figure";
const ENLARGE = {
  name: "Full screen",
  title: "Full screen",
  icon: {
    width: 24,
    height: 24,
    path: "M3 3h7v2H5v5H3zM14 3h7v7h-2V5h-5zM3 14h2v5h5v2H3zM19 14h2v7h-7v-2h5z",
  },
  click: (place) =>
    document.fullscreenElement ? document.exitFullscreen() : place.requestFullscreen(),
};

const waiting = new Map(); // the place of a figure -> what is to be drawn there
const drawn = new WeakMap(); // the place of a figure -> what was drawn there last
const heads = new WeakMap(); // the head of a card -> its name, and how it tells the server
const heard = new WeakSet(); // places that tell what is picked there
let library = null;
let resting = 0;
let linking = false;

const loaded = (file) =>
  (library ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = new URL(file, location.href);
    script.onload = () => done(window.Plotly);
    script.onerror = () => {
      library = null;
      failed();
    };
    document.head.append(script);
  }));

const near = new IntersectionObserver(
  (seen) => seen.filter((each) => each.isIntersecting).forEach((each) => draw(each.target)),
  { rootMargin: NEAR, scrollMargin: NEAR },
);
const resized = new ResizeObserver((places) => {
  for (const { target } of places)
    requestAnimationFrame(() => target.clientWidth && target.data && Plotly.Plots.resize(target));
});
const whenIdle = window.requestIdleCallback ?? ((act) => setTimeout(act, 200));

// Figures side by side show the same part of their axes.
function link(place) {
  place.on("plotly_relayout", (change) => {
    const axes = Object.entries(change).filter(([name]) => /^[xy]axis\./.test(name));
    if (linking || !axes.length) return;
    linking = true;
    const card = place.closest("[class*=st-key-card-]");
    const others = [...card.querySelectorAll(".figure[data-linked]")].filter((each) => each.data);
    Promise.all(
      others.map((each) => each !== place && Plotly.relayout(each, Object.fromEntries(axes))),
    ).finally(() => (linking = false));
  });
}

// Say that a figure could not be drawn; try once more when it comes near.
function fail(place, asked, error) {
  Plotly.purge(place);
  heard.delete(place);
  drawn.delete(place);
  delete place.dataset.due;
  place.textContent = `This figure could not be drawn (${error?.message ?? error}): reload the page.`;
  if (asked.failed || waiting.has(place)) return;
  asked.failed = true;
  waiting.set(place, asked);
  near.observe(place);
}

// In a narrow column the legend stands below its figure, on as many lines as it needs.
function narrowed(place, data, layout) {
  if (place.clientWidth >= NARROW || layout.legend?.orientation !== "h") return layout;
  const t = data.some(({ type }) => type === "heatmap") ? layout.margin.t : Math.min(layout.margin.t, 20);
  const legend = { ...layout.legend, yref: "container", y: 0, yanchor: "bottom" };
  return { ...layout, legend, margin: { ...layout.margin, t } };
}

// A horizontal colour bar of points lifts the titles of the x axes over their ticks (Plotly 6).
function settleTitles(place) {
  for (const title of place.querySelectorAll(".xtitle, .x2title")) title.removeAttribute("transform");
}

async function draw(place) {
  const asked = waiting.get(place);
  near.unobserve(place);
  waiting.delete(place);
  if (!asked) return;
  drawn.set(place, asked);
  try {
    await loaded(asked.library);
  } catch {
    place.textContent = "This figure needs a file that did not arrive: reload the page.";
    return;
  }
  if (drawn.get(place) !== asked) return; // meanwhile another figure came, or the place went
  if (!place.firstElementChild) place.textContent = ""; // a sentence, no figure
  const { data, layout, frames } = JSON.parse(asked.spec);
  try {
    await Plotly.react(place, {
      data,
      frames,
      layout: { ...narrowed(place, data, layout), autosize: true, height: undefined },
      config: {
        ...asked.config,
        responsive: false,
        displayModeBar: TOUCHED.matches ? false : "hover",
        modeBarButtonsToAdd: [ENLARGE],
        modeBarButtonsToRemove: ["toImage", "lasso2d", "select2d"],
      },
    });
  } catch (error) {
    if (place.isConnected) fail(place, asked, error);
    return;
  }
  if (!waiting.has(place)) delete place.dataset.due;
  settleTitles(place);
  if (heard.has(place)) return;
  heard.add(place);
  place.on("plotly_afterplot", () => settleTitles(place));
  if (asked.linked) link(place);
  place.on("plotly_selected", (picked) => {
    const names = (picked?.points ?? []).map((point) => point.customdata?.[0]).filter(Boolean);
    const many = Boolean(picked?.range ?? picked?.lassoPoints);
    if (names.length) asked.send("picked", { names: [...new Set(names)], many });
  });
}

// The others, one after the other, once the page is there; but not those that are folded away.
function drawNext() {
  const place = [...waiting.keys()].find((each) => each.offsetParent && !waiting.get(each).failed);
  if (!place) return;
  draw(place);
  whenIdle(drawNext);
}

function rest() {
  clearTimeout(resting);
  resting = setTimeout(() => whenIdle(drawNext), REST);
}

// Buttons that save the figures of a card for a paper, a file for each.
function offer(place, { widths, sheets, name, font: address, library }) {
  const all = ["svg", "png"].flatMap((kind) => widths.map((mm) => [kind, mm]));
  const buttons = all.map(([kind, mm]) => {
    const button = document.createElement("button");
    button.textContent = `${kind.toUpperCase()} ${mm} mm`;
    button.addEventListener("click", async () => {
      await Promise.all([loaded(library), loadFont(address)]);
      const own = sheets.filter((sheet) => sheet.mm === mm);
      for (const [at, sheet] of own.entries()) {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(await picture(sheet, kind));
        link.download = `${name}${own.length > 1 ? `-${at + 1}` : ""}-${mm}mm.${kind}`;
        link.click();
      }
    });
    return button;
  });
  place.replaceChildren(...buttons);
}

// The menu that is open: the server draws it, and takes it away once it knows that it is closed.
let menu = null;

function toggle(head, open, tell = true) {
  const { name, send } = heads.get(head);
  head.querySelector("button").ariaExpanded = open;
  for (const each of document.querySelectorAll(`.st-key-menu-${CSS.escape(name)}`)) each.hidden = !open;
  menu = open ? head : null;
  if (tell) send("menu", { open });
}

document.addEventListener("pointerdown", ({ target }) => {
  const button = target.closest?.(".head .menu"); // another's tells by itself: one message has room for one
  if (menu && button !== menu.lastElementChild && !target.closest?.("[class*=st-key-menu-]"))
    toggle(menu, false, !button);
});
document.addEventListener("keydown", (event) => {
  if (!menu || event.key !== "Escape") return;
  menu.querySelector("button").focus();
  toggle(menu, false);
});

function part(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

function drawHead(room, { name, title, finding }, send) {
  let head = room.querySelector(".head");
  if (!head) {
    head = part("div", "head");
    const button = part("button", "menu", "⋯");
    Object.assign(button, { type: "button", title: MENU, ariaLabel: MENU, ariaExpanded: false });
    button.addEventListener("click", () => toggle(head, menu !== head));
    head.append(part("h3", "title"), button);
    room.prepend(head, part("p", "finding"));
  }
  heads.set(head, { name, send });
  const [heading, sentence] = [head.firstElementChild, head.nextElementSibling];
  const anchored = heading.id !== name && decodeURIComponent(location.hash) === `#${name}`;
  heading.id = name;
  if (heading.textContent !== title) heading.textContent = title;
  if (sentence.textContent !== finding) sentence.textContent = finding;
  if (anchored) setTimeout(() => heading.scrollIntoView());
}

export default function ({ data, parentElement, setTriggerValue }) {
  if (data.sheets) return offer(parentElement.querySelector(".pictures"), data);
  const room = parentElement.querySelector(".room");
  if (data.head) drawHead(room, data.head, setTriggerValue);
  if (!data.spec) return;
  const place = room.querySelector(".figure") ?? room.appendChild(part("div", "figure"));
  place.role = "figure";
  const asked = { ...data, send: setTriggerValue };
  const last = waiting.get(place) ?? drawn.get(place);
  if (last?.spec === data.spec) Object.assign(last, asked);
  else {
    waiting.set(place, asked);
    place.dataset.due = "";
    place.toggleAttribute("data-linked", data.linked);
    near.observe(place);
    rest();
  }
  place.style.height = data.height;
  place.ariaLabel = data.title;
  resized.observe(place);
  // Of two calls in short succession, the first may be ended after the second has begun.
  return () => {
    if (place.isConnected) return;
    waiting.delete(place);
    near.unobserve(place);
    resized.unobserve(place);
    drawn.delete(place);
    heard.delete(place);
    window.Plotly?.purge(place);
  };
}
