// The introduction stays folded once the reader has folded it; the browser remembers.

const PLACE = "poskernel-introduction";

function remembered() {
  try {
    return localStorage.getItem(PLACE) === "folded";
  } catch {
    return false; // the browser stores nothing, so the introduction opens again
  }
}

function remember(folded) {
  try {
    localStorage.setItem(PLACE, folded ? "folded" : "open");
  } catch {
    // nothing can be kept
  }
}

export default function (component) {
  const details = component.parentElement.querySelector("details");
  if (details.dataset.ready) return;
  details.dataset.ready = "yes";
  details.open = !remembered();
  details.addEventListener("toggle", () => remember(!details.open));
}
