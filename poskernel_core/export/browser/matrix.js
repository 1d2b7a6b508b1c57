// Patterns of the reader's own, outside of the dashboard: plays the part of Streamlit for the two
// components that draw them. Numbers come as 32-bit floats [part, head, query, key], whose
// first bytes stand together, then the second ones, and so on, compressed and in base64.

async function unpacked(text) {
  const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = planes.length / 4;
  const whole = new Uint8Array(planes.length);
  for (let byte = 0, from = 0; byte < 4; byte++)
    for (let at = byte; at < whole.length; at += 4, from++) whole[at] = planes[from];
  return new Float32Array(whole.buffer, 0, count);
}

// What is opaque behind a node: a notebook's own paper, in its light or dark theme.
function paperOf(node) {
  for (let up = node; up; up = up.parentElement) {
    const colour = getComputedStyle(up).backgroundColor;
    if (!/^(transparent|rgba\(.*, 0\))$/.test(colour)) return colour;
  }
  return "Canvas";
}

function isLight(colour) {
  const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 127;
}

function follow(host) {
  const ink = getComputedStyle(host.parentElement).color;
  host.style.colorScheme = isLight(ink) ? "dark" : "light";
  host.style.setProperty("--paper", paperOf(host));
}

async function matrix(host, data) {
  const numbers = await unpacked(data.numbers);
  const { parts, layers, heads, names, labels, tops, top, signed, unit, causal } = data;
  const side = data.tokens.length;
  const chosen = { part: parts[0], head: 0, token: side - 1, direction: "outgoing" };
  const shadow = host.attachShadow({ mode: "open" });
  const at = (head, n, i) =>
    ((parts.indexOf(chosen.part) * labels.length + head) * side + n) * side + i;
  const seen = (head, n, i) => {
    const one = numbers[at(head, n, i)];
    return one === -Infinity ? undefined : one;
  };
  const place = (name, inside) => {
    const node = make("div");
    const root = node.attachShadow({ mode: "open" });
    root.append(make("style", {}, data.styles[name]), make("div", { class: inside }));
    return { node, root };
  };
  const [all, one] = [place("patterns", "patterns"), place("tokens", "attention")];
  const title = make("h4");
  const bar = make("div", { class: "bar" });
  const style = make("style", {}, data.styles.matrix);
  const switches = (label, names, field) =>
    choice(label, names, names[0], (name) => {
      chosen[field] = name;
      draw();
    });
  bar.append(title, switches("Direction", ["outgoing", "incoming"], "direction"));
  const few = parts.length > 1 ? [switches("What is shown", parts, "part")] : [];
  if (labels.length > 1) few.push(all.node);
  shadow.append(style, ...few, bar, one.node);

  function draw() {
    const scale = { signed, unit, key: `${chosen.part}` };
    if (labels.length > 1) {
      patterns({
        parentElement: all.root,
        setTriggerValue: (_, name) => {
          const [layer, head] = name.match(/\d+/g).map(Number);
          chosen.head = layer * heads + head;
          draw();
        },
        data: {
          ...scale, layers, heads, side, names, top,
          bare: [],
          labels: Array.from({ length: layers }, (_, l) => labels.slice(l * heads, (l + 1) * heads)),
          selected: `L${Math.floor(chosen.head / heads)}H${chosen.head % heads}`,
          level: (head, n, i) => {
            const value = seen(head, n, i);
            if (value === undefined || (causal && i > n)) return undefined;
            return fullness(value, top, signed);
          },
        },
      });
      title.textContent = labels[chosen.head];
    }
    tokens({
      parentElement: one.root,
      setTriggerValue: (_, token) => {
        chosen.token = token;
      },
      data: {
        ...scale,
        key: `${chosen.part} ${chosen.head}`,
        tokens: data.tokens,
        first: 0,
        rows: side,
        causal,
        top: tops[chosen.head],
        selected: chosen.token,
        direction: chosen.direction,
        value: (n, i) => seen(chosen.head, n, i),
      },
    });
  }

  follow(host);
  draw();
  new MutationObserver(() => follow(host)).observe(document.body, { attributes: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => follow(host));
  host.dataset.drawn = "";
}
