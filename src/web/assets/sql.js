// The box of SQL: completes tables, columns, functions, properties and events while somebody types, and remembers what was
// run in this browser. The words are options of lists in the page; without this script these only name what there is.
(() => {
  const SHOWN_MAX = 8;
  const KEPT_MAX = 30;
  const box = document.querySelector("textarea[data-words]");
  if (!box) return;

  const words = (id) => [...(document.getElementById(id)?.querySelectorAll("option") || [])].map((own) => own.value);
  const [all, properties, events] = [words("sql-words"), words("sql-properties"), words("sql-events")];
  const list = document.createElement("div");
  list.className = "suggestions";
  list.id = "sql-suggestions";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  list.hidden = true;
  box.after(list);
  box.setAttribute("aria-autocomplete", "list");
  box.setAttribute("aria-controls", list.id);
  let chosen = -1;

  const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
  const access = (name) => (/^[A-Za-z_]\w*$/.test(name) ? `.${name}` : `[${quoted(name)}]`);

  // What may stand in the place of the end of a text: how much of it, and by what.
  const found = (text) => {
    const event = /\bevent\s*(?:=|<>|IN\s*\([^)]*)\s*('[^'\n]*)$/i.exec(text);
    if (event) return { part: event[1], own: events.map((name) => [name, quoted(name)]), typed: event[1].slice(1) };
    const property = /\bproperties((?:\.|\[')([\w$.-]*))$/.exec(text);
    if (property) return { part: property[1], own: properties.map((name) => [name, access(name)]), typed: property[2] };
    const word = /(?<![\w$'.])[A-Za-z_$][\w$]*$/.exec(text);
    return word && word[0].length > 1 ? { part: word[0], own: all.map((name) => [name, name]), typed: word[0] } : null;
  };

  const hide = () => {
    list.hidden = true;
    chosen = -1;
    box.removeAttribute("aria-activedescendant");
  };

  const mark = (at) => {
    const options = list.children;
    chosen = (at + options.length) % options.length;
    [...options].forEach((own, place) => own.setAttribute("aria-selected", String(place === chosen)));
    box.setAttribute("aria-activedescendant", options[chosen].id);
    options[chosen].scrollIntoView({ block: "nearest" });
  };

  const take = (option) => {
    const { part, text } = option.dataset;
    box.setRangeText(text, box.selectionEnd - part.length, box.selectionEnd, "end");
    hide();
    box.focus();
  };

  const suggest = () => {
    hide();
    if (box.selectionStart !== box.selectionEnd) return;
    const place = found(box.value.slice(0, box.selectionEnd));
    if (!place) return;
    const typed = place.typed.toLowerCase();
    const rank = ([name]) => (name.toLowerCase().startsWith(typed) ? 0 : name.toLowerCase().includes(typed) ? 1 : 2);
    const fitting = place.own.filter((own) => rank(own) < 2 && own[1] !== place.part);
    fitting.sort((one, other) => rank(one) - rank(other));
    if (!fitting.length) return;
    list.replaceChildren(
      ...fitting.slice(0, SHOWN_MAX).map(([name, text], at) => {
        const option = document.createElement("div");
        Object.assign(option, { id: `sql-suggestion-${at}`, textContent: name });
        Object.assign(option.dataset, { part: place.part, text });
        option.setAttribute("role", "option");
        return option;
      }),
    );
    list.hidden = false;
  };

  box.addEventListener("input", suggest);
  box.addEventListener("blur", () => setTimeout(hide, 150));
  box.addEventListener("keydown", (event) => {
    if (list.hidden || event.ctrlKey || event.metaKey) return;
    // A line may end while something is suggested, so Enter takes only what was chosen.
    const act = {
      ArrowDown: () => mark(chosen + 1),
      ArrowUp: () => mark(Math.max(chosen, 0) - 1),
      Escape: hide,
      Tab: () => take(list.children[Math.max(chosen, 0)]),
      Enter: chosen < 0 ? undefined : () => take(list.children[chosen]),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const option = event.target.closest("[role=option]");
    if (option) take(option);
  });

  // ---- what was run

  const place = document.getElementById("sql-history");
  const key = `weir-sql ${box.dataset.words}`;
  const read = () => {
    try {
      const kept = JSON.parse(localStorage.getItem(key) || "[]");
      return Array.isArray(kept) ? kept.filter((own) => typeof own === "string") : [];
    } catch {
      return [];
    }
  };
  const own = box.defaultValue.trim();
  const kept = own ? [own, ...read().filter((other) => other !== own)].slice(0, KEPT_MAX) : read();
  try {
    localStorage.setItem(key, JSON.stringify(kept));
  } catch {
    // Full, or not allowed: then there is no history.
  }
  if (!place || !kept.length) return;
  place.hidden = false;
  const rows = kept.map((sql) => {
    const [row, link] = [document.createElement("li"), document.createElement("a")];
    link.href = `${box.form.getAttribute("action")}?${new URLSearchParams({ q: sql })}`;
    link.textContent = sql.replace(/\s+/g, " ").slice(0, 120);
    row.append(link);
    return row;
  });
  place.querySelector("ul").replaceChildren(...rows);
  place.querySelector("button").addEventListener("click", () => {
    localStorage.removeItem(key);
    place.hidden = true;
  });
})();
