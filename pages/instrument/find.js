// Find and go: one field that takes a head, a measure, a page, a question or a known function, and
// leads there; the slider of the query position; and the list of keys.

const MAX_FOUND = 8;
const KEYS = [
  ["/", "find a head, measure, page, question or function"],
  ["← →", "the head before or after"],
  ["← ↑ → ↓", "another head, in the grid"],
  ["Home, End", "the first or last head of the layer"],
  ["Esc", "close"],
  ["?", "these keys"],
];

// "16.0", "16 0", "l16h0" and "L16H0" name a head.
function headOf(text) {
  const found = /^\s*l?(\d+)\s*[.h, ]\s*(\d+)\s*$/i.exec(text);
  return found ? `L${+found[1]}H${+found[2]}` : null;
}

function foundBy(text, targets, heads) {
  const head = headOf(text);
  if (head) return heads.includes(head) ? [{ name: head, kind: "head", cell: head }] : [];
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rank = ({ name }) => (name.toLowerCase().startsWith(words[0]) ? 0 : 1);
  return targets
    .filter(({ name, kind, also }) => {
      const text = `${name} ${kind} ${also ?? ""}`.toLowerCase();
      return words.every((word) => text.includes(word));
    })
    .sort((a, b) => rank(a) - rank(b))
    .slice(0, MAX_FOUND);
}

function buildFind(root, data, view) {
  const field = make("input", {
    type: "search",
    role: "combobox",
    placeholder: "Find a head, measure, page …  /",
    "aria-label": "Find and go",
    "aria-expanded": "false",
    "aria-controls": "found",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
  });
  const list = make("ul", { role: "listbox", id: "found", "aria-label": "Found" });
  const keys = make("dialog", { "aria-label": "Keys" });
  const table = make("dl");
  for (const [key, meaning] of KEYS) table.append(make("dt", {}, key), make("dd", {}, meaning));
  const close = make("button", {}, "Close");
  close.addEventListener("click", () => keys.close());
  keys.append(make("h2", {}, "Keys"), table, close);
  root.replaceChildren(field, list, keys);
  Object.assign(view, { field, list, keys, found: [], at: 0 });

  const show = () => {
    list.replaceChildren(
      ...view.found.map((each, place) => {
        const item = make("li", { role: "option", id: `found-${place}`, "aria-selected": place === view.at });
        item.append(make("b", {}, each.name), ` ${each.kind}`);
        item.addEventListener("pointerdown", (event) => {
          event.preventDefault();
          go(each);
        });
        return item;
      }),
    );
    const none = field.value.trim() && !view.found.length;
    if (none) list.append(make("li", { class: "none" }, "Nothing of that name here."));
    field.setAttribute("aria-expanded", String(Boolean(view.found.length)));
    if (view.found.length) field.setAttribute("aria-activedescendant", `found-${view.at}`);
    else field.removeAttribute("aria-activedescendant");
  };
  const search = () => {
    view.found = field.value.trim() ? foundBy(field.value, view.targets, view.heads) : [];
    view.at = 0;
    show();
  };
  const leave = () => {
    field.value = "";
    search();
  };
  const go = (each) => {
    leave();
    field.blur();
    const { cell, measure, page } = each;
    if (page && page !== drawn?.page) dispatchEvent(new Event("leave"));
    decide(cell ? { cell } : {}, { measure, page });
    if (cell) walkable()[1]?.focus(); // so that arrow keys go on from there
  };
  field.addEventListener("input", search);
  field.addEventListener("blur", leave);
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && view.found.length) {
      event.preventDefault();
      view.at = (view.at + step + view.found.length) % view.found.length;
      show();
    } else if (event.key === "Enter" && view.found[view.at]) go(view.found[view.at]);
    else if (event.key === "Escape") {
      field.blur();
      walkable()[1]?.focus();
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.composedPath()[0].matches?.("input, textarea, [contenteditable=true]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !root.isConnected) return;
    if (event.key === "/") {
      event.preventDefault();
      field.focus();
    } else if (event.key === "?") keys.showModal();
  });
}

parts.find = ({ parentElement, data }) => {
  let view = views.get(parentElement);
  if (!view) {
    views.set(parentElement, (view = {}));
    buildFind(parentElement.querySelector(".find"), data, view);
  }
  Object.assign(view, { targets: data.targets, heads: data.heads });
};

parts.position = ({ parentElement, data }) => {
  let view = views.get(parentElement);
  if (!view) {
    const label = make("label", {}, "Query position n ");
    const shown = make("output");
    const slider = make("input", { type: "range", min: 0, "aria-label": "Query position n (tokens)" });
    label.append(shown);
    parentElement.querySelector(".position").replaceChildren(label, slider);
    slider.addEventListener("input", () => decide({ query: view.queries[slider.value] }));
    views.set(parentElement, (view = { shown, slider }));
  }
  view.queries = data.queries;
  view.slider.max = data.queries.length - 1;
  return () => {
    view.shown.textContent = state.query;
    view.slider.value = view.queries.indexOf(state.query);
    view.slider.setAttribute("aria-valuetext", state.query);
  };
};
