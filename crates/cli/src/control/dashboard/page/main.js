// Keeps what the program sends, and lets each part of the page draw itself from that.

import { Cap } from "./cap.js";
import { Changes } from "./changes.js";
import { Charts } from "./charts.js";
import { Doctor } from "./doctor.js";
import { clock, element, span } from "./elements.js";
import { Lanes } from "./lanes.js";
import { Money } from "./money.js";
import { Overview } from "./overview.js";
import { Story } from "./story.js";

const KEPT_CHANGES = 1000;
const KEPT_SAMPLES = 900;
const THEMES = ["system", "light", "dark"];

const byId = (id) => document.getElementById(id);

/** Everything that the page shows. `clockSkew` is how far the program's clock is ahead. */
const pool = {
  at: null,
  pauseMs: 2000,
  machines: new Map(),
  summary: null,
  samples: [],
  changes: [],
  calls: [],
  trouble: null,
  clockSkew: 0,
  filter: "",
  class: "",
  now() {
    return Date.now() + this.clockSkew;
  },
};

const story = new Story();
const open = (id) => story.open(id);
const parts = [
  new Overview(byId("overview"), byId("wrong"), open),
  new Doctor(byId("doctor"), byId("doctor-says"), byId("doctor-unchecked"), byId("examine"), open),
  new Lanes(byId("lanes"), byId("shown"), open),
  new Charts(byId("charts")),
  new Cap(byId("cap")),
  new Changes(byId("changes"), byId("kind"), open),
];

new Money(byId("money"), byId("money-says"), byId("since"), byId("reckon"), open);

let pending = false;

/** Draws once before the next frame, however many messages have come. Hidden pages wait. */
function draw() {
  if (pending) return;
  pending = true;
  const now = document.hidden ? (task) => setTimeout(task, 1000) : requestAnimationFrame;
  now(() => {
    pending = false;
    for (const part of parts) part.draw(pool);
    classes();
    tell();
  });
}

function takeState(state) {
  pool.at = state.at;
  pool.pauseMs = state.pauseMs;
  pool.machines = new Map(state.machines.map((machine) => [machine.id, machine]));
  pool.summary = state.summary;
  pool.samples = state.samples;
  pool.changes = state.changes;
  pool.calls = state.calls;
  pool.trouble = state.trouble;
}

function takeChange(change) {
  pool.at = change.at;
  pool.clockSkew = change.at - Date.now();
  pool.trouble = null;
  for (const machine of change.set) pool.machines.set(machine.id, machine);
  for (const id of change.gone) pool.machines.delete(id);
  if (change.summary) pool.summary = change.summary;
  if (change.calls) pool.calls = change.calls;
  pool.samples = pool.samples.concat(change.sample).slice(-KEPT_SAMPLES);
  if (change.changes.length > 0) {
    pool.changes = pool.changes.concat(change.changes).slice(-KEPT_CHANGES);
  }
}

/** Connects, and again whenever the connection ends. The first message is always complete. */
function connect() {
  const source = new EventSource("/events");
  const on = (name, take) =>
    source.addEventListener(name, (event) => {
      take(JSON.parse(event.data));
      connected = true;
      draw();
    });
  on("state", takeState);
  on("change", takeChange);
  on("trouble", (trouble) => (pool.trouble = trouble));
  source.addEventListener("error", () => {
    connected = false;
    tell();
    // Browsers try again by themselves, unless the answer was an error.
    if (source.readyState === EventSource.CLOSED) {
      source.close();
      setTimeout(connect, 3000);
    }
  });
}

let connected = false;

/** Says how true the page is. */
function tell() {
  const [kind, text] = standing();
  const place = byId("connection");
  if (place.dataset.kind !== kind) place.dataset.kind = kind;
  const words = byId("connection-text");
  if (words.textContent !== text) words.textContent = text;
  const notice = byId("trouble");
  notice.hidden = !pool.trouble || !connected;
  if (!notice.hidden) {
    const { message, hint, since, next } = pool.trouble;
    const advice = hint ? ` Hint: ${hint}.` : "";
    const lines = `The pool cannot be read since ${clock(since)}: ${message}.${advice} What is shown is older. Next try at ${clock(next)}.`;
    if (notice.textContent !== lines) notice.textContent = lines;
  }
}

function standing() {
  const asOf = pool.at ? `, shown as of ${clock(pool.at)}` : "";
  if (!connected) return ["lost", `no connection to ondeck dashboard${asOf}; trying again`];
  if (pool.trouble) return ["trouble", `the pool is out of reach${asOf}`];
  if (!pool.at) return ["waiting", "reading the pool"];
  const late = pool.now() - pool.at;
  if (late > Math.max(15000, 5 * pool.pauseMs)) return ["trouble", `no news for ${span(late)}`];
  return ["live", `live, every ${span(Math.max(pool.pauseMs, 1000))}`];
}

/** Offers the classes that there are. */
function classes() {
  const select = byId("class");
  const names = pool.summary ? pool.summary.classes.map((known) => known.name) : [];
  const offered = [...select.options].slice(1).map((option) => option.value);
  if (names.join() === offered.join()) return;
  const all = select.options[0];
  select.replaceChildren(all, ...names.map((name) => element("option", { value: name }, name)));
  select.value = names.includes(pool.class) ? pool.class : "";
  pool.class = select.value;
}

function theme(chosen) {
  document.documentElement.dataset.theme = chosen;
  byId("theme-name").textContent = chosen;
}

function remembered() {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
}

function remember(chosen) {
  try {
    localStorage.setItem("theme", chosen);
  } catch {
    // The choice then holds until the page is closed.
  }
}

byId("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  theme(next);
  remember(next);
  draw();
});
byId("filter").addEventListener("input", (event) => {
  pool.filter = event.target.value.trim().toLowerCase();
  draw();
});
byId("class").addEventListener("change", (event) => {
  pool.class = event.target.value;
  draw();
});
byId("kind").addEventListener("change", draw);
byId("find").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "Escape" && event.target.id === "filter") {
    event.target.value = "";
    pool.filter = "";
    draw();
  }
});
document.addEventListener("visibilitychange", draw);

theme(THEMES.includes(remembered()) ? remembered() : "system");
// Ages grow also while nothing changes.
setInterval(() => document.hidden || draw(), 1000);
connect();
