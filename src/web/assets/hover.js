// Tells the numbers of a place of a chart, for the pointer and for arrow keys. Without this script a chart tells them
// as titles, and its table has them.
(() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  let shown = null;
  // Browsers tell moves of a pointer that rests, too, when what is below it moves: these hide no tip of the keyboard.
  let isPointed = false;

  const hide = () => {
    shown?.classList.remove("current");
    shown = null;
    tip.remove();
  };

  const show = (column) => {
    if (shown === column) return;
    hide();
    // A title would be shown by the browser, too, so its text moves.
    const title = column.querySelector("title");
    if (title) {
      column.dataset.told = title.textContent;
      title.remove();
    }
    const [head, ...rows] = (column.dataset.told || "").split("\n");
    tip.replaceChildren(Object.assign(document.createElement("strong"), { textContent: head }));
    for (const row of rows) tip.append(Object.assign(document.createElement("div"), { textContent: row }));
    column.classList.add("current");
    shown = column;
    const box = column.ownerSVGElement.parentElement;
    box.append(tip);
    const place = column.querySelector(".hit").getBoundingClientRect();
    const all = box.getBoundingClientRect();
    const left = place.right - all.left + 8;
    const room = all.width - left > tip.offsetWidth;
    tip.style.left = `${room ? left : Math.max(0, place.left - all.left - tip.offsetWidth - 8)}px`;
  };

  addEventListener("pointermove", (event) => {
    const column = event.target.closest?.(".column");
    if (!column) return isPointed && hide();
    isPointed = true;
    show(column);
  });

  addEventListener("keydown", (event) => {
    const plot = event.target.closest?.(".chart-plot");
    if (!plot) return;
    const columns = [...plot.querySelectorAll(".column")];
    const at = columns.indexOf(shown);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: columns.length - 1 }[event.key];
    if (event.key === "Escape") hide();
    const link = shown?.querySelector("a");
    if (event.key === "Enter" && link) location.assign(link.getAttribute("href"));
    if (next === undefined || !columns.length) return;
    event.preventDefault();
    isPointed = false;
    show(columns[Math.min(Math.max(next, 0), columns.length - 1)]);
  });

  addEventListener("focusout", hide);
})();
