
      window.__streamlit = {BACKEND_BASE_URL: new URL(".", window.location.href).href}

      // The history holds what a reader did, each page with all that was chosen on it. Streamlit
      // adds entries of its own: before it leaves a page, it strips the address of what only this
      // page knows, so that Back would lead to the stripped one; and whatever a run of the script
      // writes into the address becomes one. The first kind is left out, the second takes the
      // place of the entry that is open, unless a reader did something since the last.
      {
        const push = history.pushState.bind(history)
        let acted = false
        let leaving = false
        const act = () => (acted = true)
        for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, act, true)
        addEventListener("click", (event) => {
          const link = event.composedPath().find((node) => node.href)
          const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey || link?.target
          if (link && !elsewhere) leaving = new URL(link.href).pathname !== location.pathname
        }, true)
        addEventListener("popstate", () => (acted = leaving = false))
        history.pushState = (state, title, address) => {
          const stays = new URL(address, location.href).pathname === location.pathname
          if (stays && leaving) return
          if (stays && !acted) history.replaceState(state, title, address)
          else push(state, title, address)
          acted = leaving = false
        }
      }
    
