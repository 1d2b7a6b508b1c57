// When a visitor last did something, when the page last asked for a run of its script, when a run
// last began, and when anything was last drawn: from these `settle` in visit.py knows whether more
// is still to come.
(() => {
  const times = (window.visitor = { did: 0, asked: 0, began: 0, drew: 0 });
  const note = name => () => (times[name] = performance.now());
  for (const kind of ["pointerdown", "pointerup", "keydown", "input", "popstate"])
    window.addEventListener(kind, note("did"), { capture: true, passive: true });
  const RERUN = (11 << 3) | 2; // how a message that asks for a run begins: its field 11
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (message) {
    if (message[0] === RERUN) note("asked")();
    return send.call(this, message);
  };
  const STATE = "data-test-script-state";
  const running = ({ type, target }) => type === "attributes" && target.getAttribute(STATE) === "running";
  new MutationObserver(changes => {
    note("drew")();
    if (changes.some(running)) note("began")();
  }).observe(document, { subtree: true, childList: true, attributeFilter: [STATE] });
})();
