
      // One card alone (pages/shared/cards/embed.py): the style hides all else from the start.
      const embed = new URLSearchParams(location.search).getAll("embed")
      if (embed.some((each) => each && !/^(true|false)$/i.test(each)))
        document.documentElement.dataset.embed = ""

      window.__streamlit = {BACKEND_BASE_URL: new URL(".", window.location.href).href}

      // Back undoes the last choice of a head, a model, a query position or a page. This is the one
      // place that decides: the script writes the address once a run, and a write of another of
      // these is a new entry of the history if the present one is at least a second old. All else
      // replaces it: what a link is understood as, before the reader has acted, and the address of
      // a page that was just opened, which is bare at first. The card that the link names is kept.
      // A choice that is taken back at once leaves two entries that say the same: Back and Forward
      // pass the second. So entries are numbered.
      {
        const [push, replace] = [history.pushState.bind(history), history.replaceState.bind(history)]
        const ENTRY = ["head", "model", "query"]
        let since = performance.now()
        let acted = false
        let bare = false
        let leaving = false
        let place = history.state?.place ?? 0
        let here = new URL(location.href)
        const same = (one, other) => one.pathname === other.pathname &&
          ENTRY.every((key) => one.searchParams.get(key) === other.searchParams.get(key))
        const act = () => (acted = true)
        for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, act, true)
        const folder = (address) => new URL(".", address).href
        addEventListener("click", (event) => {
          const link = event.composedPath().find((node) => node.href)
          if (link?.target && !("embed" in document.documentElement.dataset))
            if (folder(link.href) === folder(location.href)) link.target = "_self" // our own page
        }, true)
        addEventListener("leave", () => (leaving = true)) // by the field that finds pages
        addEventListener("popstate", ({state}) => {
          const [before, step] = [here, state?.place - place]
          here = new URL(location.href)
          place = state?.place ?? place
          bare = leaving = false
          if (Math.abs(step) === 1 && same(before, here)) history.go(step)
        })
        history.replaceState = (state, title, address) => {
          replace({...state, place}, title, address)
          here = new URL(location.href)
        }
        history.pushState = (state, title, address) => {
          const [next, now] = [new URL(address, location.href), new URL(location.href)]
          const stays = next.pathname === now.pathname
          if (stays && leaving) return // the page that is left stays as it was
          const old = performance.now() - since >= 1000
          if (old && (!stays || (!same(next, now) && acted && !bare))) {
            push({...state, place: ++place}, title, address)
            here = next
            since = performance.now()
          } else {
            if (stays) next.hash ||= location.hash
            history.replaceState(state, title, next.href)
          }
          bare = !stays
          leaving = false
        }
      }
