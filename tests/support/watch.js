// What `settle` in visit.py goes by: when a visitor last did something, when the page last asked
// for a run of its script, when a run last began and ended, and when anything was last drawn.
(() => {
  const times = (window.visitor = { did: 0, asked: 0, began: 0, ended: 0, drew: 0 });
  const note = name => (times[name] = performance.now());
  for (const kind of ["pointerdown", "pointerup", "click", "keydown", "input", "popstate"])
    window.addEventListener(kind, () => note("did"), { capture: true, passive: true });
  new MutationObserver(() => note("drew")).observe(document, { subtree: true, childList: true });

  // What moves while it waits is drawn sixty times a second.
  const still = new CSSStyleSheet();
  still.replaceSync("*, ::before, ::after { animation: none !important; transition: none !important }");
  document.adoptedStyleSheets = [still];

  // Protocol buffers: before each field stands its number and, in three bits, how it is written.
  const RERUN = (11 << 3) | 2, NEW_SESSION = (4 << 3) | 2, SCRIPT_FINISHED = 6 << 3;
  const LONG = 2; // written as its length and so many bytes
  const FOR_ANOTHER_RUN = 2; // how a run ended: another one follows at once
  const numberIn = (bytes, wanted) => {
    for (let at = 0; at < bytes.length; ) {
      const tag = bytes[at++];
      if (tag > 127) return; // a field from 16 on: none that is looked for
      let value = 0, shift = 0;
      do value += (bytes[at] & 127) * 2 ** shift, shift += 7;
      while (bytes[at++] > 127);
      if (tag === wanted) return value;
      if ((tag & 7) === LONG) at += value;
    }
  };
  window.WebSocket = class extends WebSocket {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", ({ data }) => {
        if (!(data instanceof ArrayBuffer)) return;
        const bytes = new Uint8Array(data);
        if (numberIn(bytes, NEW_SESSION) !== undefined) note("began");
        if (![undefined, FOR_ANOTHER_RUN].includes(numberIn(bytes, SCRIPT_FINISHED))) note("ended");
      });
    }
    send(message) {
      if (message[0] === RERUN) note("asked");
      return super.send(message);
    }
  };
})();
