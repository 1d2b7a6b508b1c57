// What of a page cannot be read: text cut off by its frame, outside of its figure, or over another
// text; numbers broken over two lines; cards and figures with nothing in them. Tables that scroll, code
// and formulas are left out.
() => {
  const NUMBER = /(?<![\w.-])[−+]?\d[\d.,]*\d(\)?×10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?/g;
  const found = [];
  const skip = "svg, canvas, [data-testid=stDataFrame], [data-testid=stIconMaterial], .katex, pre, script, style, input, textarea, [data-testid=stHtml]";
  const own = node => [...node.childNodes].some(c => c.nodeType === 3 && c.textContent.trim());
  const say = (why, node, text) => found.push(`${why}: ${text.trim().slice(0, 60)} (${node.closest("[data-testid]")?.dataset.testid})`);
  for (const node of document.querySelectorAll("[data-testid=stMain] *")) {
    if (!own(node) || node.closest(skip)) continue;
    const box = node.getBoundingClientRect();
    if (!box.width || !box.height || !node.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const frames = [];
    for (let up = node; up && up.dataset?.testid !== "stMain"; up = up.parentElement) frames.push(up);
    if (frames.some(up => up.clientWidth === 1)) continue;
    if (frames.some(up => getComputedStyle(up).overflowX !== "visible" && up.clientWidth && up.scrollWidth > up.clientWidth + 1)) say("cut", node, node.textContent);
  }
  for (const field of document.querySelectorAll("[data-testid=stMain] input[role=combobox]"))
    if (field.scrollWidth > field.clientWidth + 1) say("field", field, field.value);
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const frame = plot.getBoundingClientRect();
    const name = plot.closest("[class*=st-key-figure]")?.className.match(/figure-([\w-]+)/)?.[1];
    if (!frame.width) continue;
    const texts = [...plot.querySelectorAll(".main-svg text")].filter(t => t.textContent.trim()).map(t => [t, t.getBoundingClientRect()]).filter(([, b]) => b.width);
    for (const [text, box] of texts)
      if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.bottom > frame.bottom + 2) say(`beyond ${name}`, text, text.textContent);
    for (const kind of [".xtick", ".ytick", ".cbaxis"]) {
      const labels = texts.filter(([t]) => t.closest(kind));
      for (let i = 1; i < labels.length; i++) {
        const [a, b] = [labels[i - 1][1], labels[i][1]];
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 2 && down > 3) { say(`overlap ${kind} ${name}`, labels[i][0], `${labels[i - 1][0].textContent} / ${labels[i][0].textContent}`); break; }
      }
    }
  }
  const seen = node => node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const roots = [document.querySelector("[data-testid=stMain]")];
  for (const each of document.querySelectorAll("[data-testid=stMain] *")) if (each.shadowRoot) roots.push(each.shadowRoot);
  const unseen = node => node && (node.clientWidth === 1 || unseen(node.parentElement)); // read aloud alone
  const lines = [];
  for (const root of roots)
    for (const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT); walk.nextNode(); ) {
      const text = walk.currentNode, node = text.parentElement, range = document.createRange();
      if (!text.data.trim() || !node || node.closest(skip) || !seen(node)) continue;
      if (node.closest("[popover], .st-key-above, .st-key-forming") || unseen(node)) continue;
      const errors = node.closest("td") ? [...text.data.matchAll(/±\s[\d.]+/g)] : [];
      for (const part of [...text.data.matchAll(NUMBER), ...errors]) {
        range.setStart(text, part.index);
        range.setEnd(text, part.index + part[0].length);
        const tops = [...range.getClientRects()].filter(box => box.width).map(box => box.top);
        if (Math.max(...tops) - Math.min(...tops) > 4) say("broken", node, part[0]);
      }
      range.selectNodeContents(text);
      for (const box of range.getClientRects()) if (box.width > 2 && box.height > 4) lines.push([node, box]);
    }
  lines.sort(([, a], [, b]) => a.top - b.top);
  for (const [i, [one, a]] of lines.entries())
    for (let j = i + 1; j < lines.length && lines[j][1].top < a.bottom - 4; j++) {
      const [two, b] = lines[j];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - b.top;
      if (one !== two && across > 3 && down > 0.5 * Math.min(a.height, b.height)) say("over", one, `${one.textContent.slice(0, 25)} / ${two.textContent.slice(0, 25)}`);
    }
  const holds = ({ x, y, z, values, cells, visible }) => visible !== false && [x, y, z, values, cells?.values].some(each => each?.length);
  for (const plot of document.querySelectorAll(".js-plotly-plot"))
    if (plot.clientWidth && !plot._fullData?.some(holds)) say("empty figure", plot, plot.ariaLabel ?? "");
  for (const card of document.querySelectorAll("[class*=st-key-card-]")) {
    const inside = [...card.querySelectorAll("*")].filter(each => !each.closest(".head, .finding"));
    const full = each => each.shadowRoot || (own(each) && each.textContent.trim()) || /^(canvas|table|svg|img)$/i.test(each.tagName);
    if (seen(card) && !inside.some(each => full(each) && each.getBoundingClientRect().height > 10)) say("empty card", card, card.textContent);
  }
  return [...new Set(found)];
}
