// Answers a changed form without loading the whole page: fetches the address that the form would go to, puts the
// part of the answer in its place, and makes the address the page's. Without this script the button does it.
(() => {
  let running = null;

  // The address of a form, without the fields that say nothing.
  const addressOf = (form) => {
    const fields = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (value !== "") fields.append(name, value);
    }
    const query = fields.toString();
    return form.getAttribute("action") + (query ? "?" + query : "");
  };

  const show = async (address, part, push) => {
    const place = document.getElementById(part);
    if (!place) return location.assign(address);
    // The server stops computing what nobody waits for.
    if (running) running.abort();
    const own = (running = new AbortController());
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(address, {
        headers: { "Weir-Part": part },
        signal: own.signal,
        credentials: "same-origin",
      });
      if (!answer.ok && answer.status !== 400) return location.assign(address);
      const whole = new DOMParser().parseFromString(await answer.text(), "text/html");
      const parsed = whole.getElementById(part);
      if (!parsed) return location.assign(address);
      place.replaceChildren(...parsed.childNodes);
      place.removeAttribute("aria-busy");
      // Links to other kinds of insights keep what is asked.
      const kinds = whole.getElementById("kinds");
      if (kinds) document.getElementById("kinds")?.replaceWith(kinds);
      // The server may have made the address shorter.
      if (push) history.pushState({ part }, "", answer.url || address);
    } catch (error) {
      if (error.name !== "AbortError") location.assign(address);
    }
  };

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-swap]");
    if (form && form.checkValidity()) show(addressOf(form), form.dataset.swap, true);
  });

  // The button loads the page: it has the new rows of the form, too.
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-swap]");
    if (!form) return;
    event.preventDefault();
    location.assign(addressOf(form));
  });

  addEventListener("popstate", () => location.reload());
})();
