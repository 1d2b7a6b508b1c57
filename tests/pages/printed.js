// What cannot be read in a picture for a paper: text outside of it, or over its legend, a colour bar or another text.
async (sheet) => {
  const { text } = await sheetOf(sheet);
  document.body.innerHTML = text;
  const root = document.body.firstElementChild;
  const frame = root.getBoundingClientRect();
  const scale = frame.width / sheet.width;
  const box = (node) => node.getBoundingClientRect();
  const meets = (a, b, by) => // lines of text are higher than their letters
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 * scale &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > by * scale;
  const texts = [...root.querySelectorAll("text")].filter((each) => each.textContent.trim());
  const legends = [...root.querySelectorAll(".legend")];
  const bars = [...root.querySelectorAll(".cbfills")];
  const found = [];
  for (const each of texts) {
    const at = box(each), said = each.textContent.slice(0, 50);
    const size = parseFloat(getComputedStyle(each).fontSize);
    if (at.left < frame.left - 1 || at.right > frame.right + 1 || at.top < frame.top - 1 || at.bottom > frame.bottom + 1) found.push(`outside: ${said}`);
    if (size < 9.3 || size > 12.1) found.push(`${size} pixels: ${said}`);
    if (!each.closest(".legend") && legends.some((legend) => meets(at, box(legend), 2))) found.push(`over the legend: ${said}`);
    if (bars.some((bar) => meets(at, box(bar), 3))) found.push(`over a colour bar: ${said}`);
    if (!getComputedStyle(each).fontFamily.includes("PosKernel Sans")) found.push(`font: ${said}`);
  }
  for (const [at, each] of texts.entries())
    for (const other of texts.slice(at + 1))
      if (meets(box(each), box(other), 5)) found.push(`over each other: ${each.textContent.slice(0, 30)} / ${other.textContent.slice(0, 30)}`);
  return found;
}
