// Colours the grid by the chosen measure, which stands in the address; says what a cell holds.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const select = document.getElementById("measure");
  const told = document.getElementById("told");
  const cells = [...document.querySelectorAll("a[data-at]")];
  const at = (cell) => cell.dataset.at.split(",").map(Number);
  const text = (cell) => {
    const [layer, head] = at(cell);
    const one = data[Number(select.value)];
    return `L${layer}H${head}, ${one.title}: ${one.texts[layer][head]}`;
  };

  function draw() {
    const one = data[Number(select.value)];
    for (const cell of cells) {
      const [layer, head] = at(cell);
      cell.style.background = one.colours[layer][head];
      cell.title = text(cell);
    }
    document.getElementById("reading").textContent = one.reading;
    document.getElementById("legend").replaceChildren(
      ...one.ends.map(([colour, meaning]) => {
        const entry = document.createElement("span");
        const patch = document.createElement("i");
        patch.style.background = colour;
        entry.append(patch, meaning);
        return entry;
      }),
    );
  }

  function follow() {
    const wanted = decodeURIComponent(location.hash).match(/^#measure=(.+)$/);
    const place = wanted ? data.findIndex((one) => one.title === wanted[1]) : 0;
    if (place < 0) told.textContent = `There is no measure ${wanted[1]} here: shown is ${data[0].title}.`;
    select.value = String(Math.max(place, 0));
    draw();
  }

  select.addEventListener("change", () => {
    history.replaceState(null, "", `#measure=${encodeURIComponent(data[Number(select.value)].title)}`);
    draw();
  });
  for (const cell of cells) {
    for (const event of ["mouseenter", "focus"]) {
      cell.addEventListener(event, () => { told.textContent = text(cell); });
    }
  }
  addEventListener("hashchange", follow);
  follow();
})();
