// New events appear at the top of the table as the server sends them; the server has escaped them. At most ROWS_MAX
// rows stay. Pausing keeps what comes meanwhile, up to the same number.
(() => {
  const ROWS_MAX = 200;
  const body = document.querySelector("[data-live]");
  if (!body) return;
  const state = document.getElementById("live-state");
  const button = document.getElementById("live-pause");
  let waiting = [];
  let paused = false;

  const add = (rows) => {
    for (const row of rows) {
      const template = document.createElement("template");
      template.innerHTML = row;
      for (const fresh of template.content.querySelectorAll("tr")) fresh.classList.add("fresh");
      body.prepend(template.content);
    }
    while (body.rows.length > ROWS_MAX) body.deleteRow(-1);
    const empty = document.getElementById("live-empty");
    if (empty && rows.length) empty.remove();
  };

  const say = (text) => {
    if (state) state.textContent = text;
  };

  const source = new EventSource(body.dataset.live);
  source.addEventListener("open", () => say("Live"));
  source.addEventListener("error", () => say("Reconnecting"));
  source.addEventListener("rows", (event) => {
    const rows = JSON.parse(event.data);
    if (!paused) return add(rows);
    waiting = waiting.concat(rows).slice(-ROWS_MAX);
    say(`Paused, ${waiting.length} waiting`);
  });
  addEventListener("pagehide", () => source.close());

  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.textContent = paused ? "Continue" : "Pause";
      say(paused ? "Paused" : "Live");
      if (!paused) {
        add(waiting);
        waiting = [];
      }
    });
  }
})();
