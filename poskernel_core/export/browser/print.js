// Pictures for a paper: a title, a figure of Plotly's, and a caption.

const FAMILY = "PosKernel Sans";
const [STEP, HEADING] = [12, 16]; // pixels: lines of 7 points, and of 9
const DOTS = 6.25; // of a PNG for each pixel: 600 to the inch
const DENSITY = [0, 0, 0, 9, 112, 72, 89, 115, 0, 0, 92, 70, 0, 0, 92, 70, 1, 20, 148, 67, 65];

const asUri = (blob) =>
  new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.readAsDataURL(blob);
  });

let font = ""; // as it stands in files

async function loadFont(address) {
  const found = font || (await asUri(await (await fetch(address)).blob()));
  document.fonts.add(await new FontFace(FAMILY, `url(${found})`, { weight: "200 900" }).load());
  font = found;
}

// Draw a figure so that all of its text is inside, and nothing over its legend, as SVG.
async function drawing({ data, layout }) {
  const place = document.createElement("div");
  place.style.cssText = "position: fixed; left: -9999px; top: 0";
  document.body.append(place);
  await Plotly.newPlot(place, data, layout, { staticPlot: true });
  for (let turn = 0; turn < 3; turn++) {
    const { _size: size, xaxis, yaxis, height } = place._fullLayout;
    const frame = place.getBoundingClientRect();
    const legend = place.querySelector(".legend")?.getBoundingClientRect();
    const boxes = [...place.querySelectorAll(".main-svg text")]
      .filter((text) => text.textContent.trim() && !text.closest(".legend"))
      .map((text) => text.getBoundingClientRect());
    const over = (far) => Math.max(0, ...boxes.map((box) => Math.ceil(far(box))));
    const floor = legend ? legend.top - 6 : frame.bottom - 2;
    const more = {
      l: over((box) => frame.left + 2 - box.left),
      r: over((box) => box.right - frame.right + 2),
      t: over((box) => frame.top + 2 - box.top),
      b: over((box) => box.bottom - floor),
    };
    let taller = more.t + more.b;
    if (yaxis?.scaleanchor === "x") {
      const [wide, high] = [xaxis, yaxis].map(({ range }) => Math.abs(range[1] - range[0]));
      taller += Math.round(((size.w - more.l - more.r) * high) / wide - size.h);
    }
    if (!taller && !more.l && !more.r) break;
    const margin = Object.entries(more).map(([side, by]) => [`margin.${side}`, size[side] + by]);
    await Plotly.relayout(place, { ...Object.fromEntries(margin), height: height + taller });
  }
  const { width, height, _size: size } = place._fullLayout;
  const [frame, ...drawn] = [place, ...place.querySelectorAll(".main-svg text, .legend")].map(
    (node) => node.getBoundingClientRect(),
  );
  const cut = Math.min(size.t, ...drawn.map((box) => box.top - frame.top)) - 4;
  const end = Math.max(height - size.b, ...drawn.map((box) => box.bottom - frame.top)) + 4;
  const svg = await Plotly.toImage(place, { format: "svg", width, height, imageDataOnly: true });
  Plotly.purge(place);
  place.remove();
  return layout.scene ? { svg, cut: 0, height } : { svg, cut, height: end - cut };
}

const escaped = (text) => text.replace(/[&<>]/g, (letter) => `&#${letter.charCodeAt(0)};`);

async function sheetOf(sheet) {
  const { svg, height, cut } = await drawing(sheet);
  const { width, title, caption, mm } = sheet;
  const top = title.length * HEADING + 4;
  const whole = Math.ceil(top + height + caption.length * STEP + 8);
  const lines = (texts, y, step, look) =>
    texts.map((text, at) => `<text x="4" y="${y + at * step}" ${look}>${escaped(text)}</text>`);
  return {
    width,
    height: whole,
    text: [
      `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"`,
      ` width="${mm}mm" height="${((whole * mm) / width).toFixed(2)}mm"`,
      ` viewBox="0 0 ${width} ${whole}" font-family="'${FAMILY}', Arial, sans-serif">`,
      `<desc>${escaped(sheet.about)}</desc><style>@font-face{font-family:'${FAMILY}';`,
      `font-weight:200 900;src:url(${font})}</style><rect width="100%" height="100%" fill="#fff"/>`,
      `<g transform="translate(0,${top - cut})">${svg}</g>`,
      ...lines(title, 13, HEADING, `font-size="12" font-weight="600"`),
      ...lines(caption, top + height + STEP, STEP, `font-size="9.333"`),
      "</svg>",
    ].join(""),
  };
}

// Return a picture as a file, "svg" or "png".
async function picture(sheet, kind) {
  const { text, width, height } = await sheetOf(sheet);
  const vector = new Blob([text], { type: "image/svg+xml" });
  if (kind === "svg") return vector;
  const image = new Image();
  image.src = await asUri(vector);
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width * DOTS, height * DOTS];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const png = await new Promise((done) => canvas.toBlob(done));
  const parts = [png.slice(0, 33), new Uint8Array(DENSITY), png.slice(33)]; // after the header
  return new Blob(parts, { type: "image/png" });
}
