// What every page may have: buttons that copy, keys that lead to pages, forms that ask before they remove.
(() => {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-clip]");
    if (!button) return;
    const text = button.dataset.clip ?? document.getElementById(button.dataset.copy)?.textContent;
    if (!text) return;
    await navigator.clipboard.writeText(text);
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = before), 1500);
  });

  // A dashboard on a wall.
  for (const button of document.querySelectorAll("[data-full]")) {
    button.hidden = !document.fullscreenEnabled;
    button.addEventListener("click", () => document.getElementById(button.dataset.full)?.requestFullscreen());
  }

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });

  // On narrow screens the pages are a line, in which the current one may be out of sight.
  document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // What waits for something looks again, and leaves the rest of the page as it is.
  const again = async () => {
    const waiting = document.querySelector("[data-again]");
    if (!waiting) return;
    try {
      const page = await (await fetch(location.href)).text();
      const fresh = new DOMParser().parseFromString(page, "text/html").getElementById(waiting.id);
      if (fresh) waiting.replaceWith(fresh);
    } catch {
      // The server may be starting again.
    }
    later();
  };
  const later = () => {
    const waiting = document.querySelector("[data-again]");
    if (waiting) setTimeout(again, 1000 * Number(waiting.dataset.again));
  };
  later();

  // `?` shows the keys: what the page about them has.
  const keys = async () => {
    const open = document.getElementById("keys");
    if (open) return open.remove();
    const page = await (await fetch("/help/keys")).text();
    const list = new DOMParser().parseFromString(page, "text/html").querySelector("[data-keys]");
    if (!list) return;
    const dialog = document.createElement("dialog");
    dialog.id = "keys";
    dialog.append(list);
    dialog.addEventListener("close", () => dialog.remove());
    dialog.addEventListener("click", (click) => click.target === dialog && dialog.close());
    document.body.append(dialog);
    dialog.showModal();
  };

  // `j` and `k` go through the rows of a list, `e` to its files.
  const row = (step) => {
    const links = [...document.querySelectorAll("main tbody tr")].map((own) => own.querySelector("a")).filter(Boolean);
    const at = links.findIndex((own) => own.closest("tr").contains(document.activeElement));
    links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step]?.focus();
  };

  // `/` goes to the first field of a search, `g` and a letter to a page, Ctrl+Enter sends a text.
  let after = "";
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest("input, textarea, select");
    if (field) {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && field.form) field.form.requestSubmit();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      const search = document.querySelector("main input[type=search], main input[type=text], main textarea");
      if (search) {
        search.focus();
        event.preventDefault();
      }
    }
    if (event.key === "?") keys();
    if (event.key === "j" || event.key === "k") row(event.key === "j" ? 1 : -1);
    if (event.key === "e" && after !== "g") document.querySelector("[data-file]")?.focus();
    if (after === "g") {
      const link = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      if (link) link.click();
    }
    after = event.key;
  });
})();
