
      // One card alone (pages/shared/cards/embed.py): the style hides all else from the start.
      const embed = new URLSearchParams(location.search).getAll("embed")
      if (embed.some((each) => each && !/^(true|false)$/i.test(each)))
        document.documentElement.dataset.embed = ""

      window.__streamlit = {BACKEND_BASE_URL: new URL(".", window.location.href).href}

      // The browser's history should hold only the reader's actions: each page with its settings.
      // Streamlit adds two kinds of entries. Before it leaves a page, it pushes the address without
      // the page's own settings, so that Back would lead there: this entry is dropped. And every
      // change of the address by a run of the script is pushed: it replaces the current entry,
      // unless the reader acted since the last one, and keeps the card that the link names.
      {
        const push = history.pushState.bind(history)
        let acted = false
        let leaving = false
        const act = () => (acted = true)
        for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, act, true)
        const folder = (address) => new URL(".", address).href
        addEventListener("click", (event) => {
          const link = event.composedPath().find((node) => node.href)
          const moved = event.ctrlKey || event.metaKey || event.shiftKey
          if (link?.target && !("embed" in document.documentElement.dataset))
            if (folder(link.href) === folder(location.href)) link.target = "_self" // our own page
          const elsewhere = moved || (link?.target && link.target !== "_self")
          if (link && !elsewhere) leaving = new URL(link.href).pathname !== location.pathname
        }, true)
        addEventListener("leave", () => (leaving = true)) // by the field that finds pages
        addEventListener("popstate", () => (acted = leaving = false))
        history.pushState = (state, title, address) => {
          const next = new URL(address, location.href)
          const stays = next.pathname === location.pathname
          if (stays && leaving) return
          if (stays && !acted) {
            next.hash ||= location.hash
            history.replaceState(state, title, next.href)
          } else push(state, title, address)
          acted = leaving = false
        }
      }
    
