// What of a page's text cannot be read whole: cut off by its frame, outside of its figure, or over
// another tick's. Tables that scroll, code and formulas are left out.
() => {
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
  return [...new Set(found)];
}
