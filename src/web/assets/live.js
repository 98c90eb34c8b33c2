// New events appear at the top of the table as the server sends them; the server has escaped them. At most ROWS_MAX
// rows stay. Pausing keeps what comes meanwhile, up to the same number. An event that is there already is left out:
// after a break the server tells again what may have been missed.
(() => {
  const ROWS_MAX = 200;
  const MINUTE_MILLIS = 60_000;
  const body = document.querySelector("[data-live]");
  if (!body) return;
  const state = document.getElementById("live-state");
  const rate = document.getElementById("live-rate");
  const button = document.getElementById("live-pause");
  const known = (id) => body.querySelector(`[data-id="${CSS.escape(id)}"]`);
  let waiting = [];
  let came = 0;
  let paused = false;
  let lately = [];

  const add = (rows) => {
    for (const row of rows) {
      const template = document.createElement("template");
      template.innerHTML = row;
      for (const fresh of template.content.querySelectorAll("tr")) {
        if (fresh.dataset.id && known(fresh.dataset.id)) fresh.remove();
        else fresh.classList.add("fresh");
      }
      body.prepend(template.content);
    }
    while (body.rows.length > ROWS_MAX) body.deleteRow(-1);
    const empty = document.getElementById("live-empty");
    if (empty && rows.length) empty.remove();
  };

  const say = (text) => {
    if (state && state.textContent !== text) state.textContent = text;
  };
  const sayPaused = () => say(came ? `Paused, ${came.toLocaleString("en")} came` : "Paused");

  const count = (events) => {
    const now = Date.now();
    if (events) lately.push([now, events]);
    lately = lately.filter(([at]) => now - at < MINUTE_MILLIS);
    const all = lately.reduce((sum, [, own]) => sum + own, 0);
    if (rate) rate.textContent = `${all.toLocaleString("en")} ${all === 1 ? "event" : "events"} in the last minute`;
  };
  // The script has the number of those who came before it.
  count(Number(document.currentScript?.dataset.lately ?? 0));
  setInterval(count, 5000, 0);

  const source = new EventSource(body.dataset.live);
  source.addEventListener("open", () => (paused ? sayPaused() : say("Live")));
  source.addEventListener("error", () => say("Reconnecting"));
  source.addEventListener("rows", (event) => {
    const told = JSON.parse(event.data);
    count(told.count);
    if (!paused) return add(told.rows);
    came += told.count;
    waiting = waiting.concat(told.rows).slice(-ROWS_MAX);
    sayPaused();
  });
  source.addEventListener("refused", (event) => {
    const section = document.getElementById("not-stored");
    if (section) section.innerHTML = JSON.parse(event.data);
  });
  addEventListener("pagehide", () => source.close());

  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.textContent = paused ? "Continue" : "Pause";
      if (paused) return sayPaused();
      add(waiting);
      waiting = [];
      came = 0;
      say("Live");
    });
  }
})();
