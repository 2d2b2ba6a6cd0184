// A lane for each state, with a card for each machine. Of a long lane only the first are drawn.

import { age, counted, element, short } from "./elements.js";

const LANES = [
  ["created", "Created", "booting for a run"],
  ["idle", "Idle", "waiting in the pool"],
  ["claimed", "Claimed", "being checked for a run"],
  ["running", "Running", "given to a run"],
  ["preserved", "Preserved", "kept for people"],
  ["terminated", "Terminated", "in the last 10 minutes"],
];
const FIRST = 40;
const MORE = 200;
const URGENT = ["silent", "failed", "overdue", "unready", "retiring", "preserved"];
const MOVE_MS = 450;

export class Lanes {
  constructor(root, shown, open) {
    this.shown = shown;
    this.open = open;
    this.cards = new Map();
    this.lanes = new Map(LANES.map(([state, title, what]) => [state, this.lane(state, title, what)]));
    root.append(...[...this.lanes.values()].map((lane) => lane.root));
    root.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("click", (event) => {
      const card = event.target.closest(".card");
      if (card) this.open(card.dataset.id);
    });
  }

  lane(state, title, what) {
    // Before the pool has been read, it is not said that there are none.
    const count = element("span", { class: "count" });
    const list = element("ul", { "aria-label": `${title} machines` });
    const more = element("button", { type: "button", class: "plain more", hidden: "" });
    const empty = element("p", { class: "quiet empty", hidden: "" }, "none");
    const lane = { count, list, more, empty, most: FIRST };
    more.addEventListener("click", () => {
      lane.most += MORE;
      this.draw(this.pool);
    });
    lane.root = element(
      "section",
      { class: "lane", "data-state": state, "aria-label": title, hidden: state === "preserved" ? "" : null },
      element("h3", {}, element("span", { class: "dot", "aria-hidden": "true" }), `${title} `, count),
      element("p", { class: "quiet what" }, what),
      empty,
      list,
      more,
    );
    return lane;
  }

  draw(pool) {
    this.pool = pool;
    if (!pool.summary) return;
    const matching = [...pool.machines.values()].filter((machine) => matches(machine, pool));
    const all = pool.machines.size;
    const text = pool.filter || pool.class ? `${counted(matching.length, "machine matches", "machines match")} of ${all.toLocaleString("en")}` : "";
    if (this.shown.textContent !== text) this.shown.textContent = text;
    const before = this.places();
    const focused = document.activeElement?.closest(".card");
    const drawn = new Set();
    for (const [state, lane] of this.lanes) {
      const machines = matching.filter((machine) => machine.state === state);
      this.drawLane(state, lane, machines, pool, drawn);
    }
    for (const [id, card] of this.cards) {
      if (drawn.has(id)) continue;
      card.root.remove();
      this.cards.delete(id);
    }
    // A card that is moved to another place loses the focus.
    if (focused?.isConnected) focused.focus({ preventScroll: true });
    this.rove();
    this.animate(before);
  }

  drawLane(state, lane, machines, pool, drawn) {
    lane.root.hidden = state === "preserved" && machines.length === 0;
    const count = machines.length.toLocaleString("en");
    if (lane.count.textContent !== count) lane.count.textContent = count;
    lane.empty.hidden = machines.length > 0;
    const shown = first(machines, lane.most);
    let place = lane.list.firstElementChild;
    for (const machine of shown) {
      drawn.add(machine.id);
      const card = this.card(machine);
      card.update(machine, pool.now());
      if (card.root === place) place = place.nextElementSibling;
      else lane.list.insertBefore(card.root, place);
    }
    const left = machines.length - shown.length;
    lane.more.hidden = left === 0;
    const words = `${counted(left, "more machine", "more machines")}`;
    if (left > 0 && lane.more.textContent !== words) lane.more.textContent = words;
  }

  card(machine) {
    const known = this.cards.get(machine.id);
    if (known) return known;
    const card = new Card(machine);
    this.cards.set(machine.id, card);
    return card;
  }

  /** Where each card is, and in which lane. Nothing if the reader wants no motion. */
  places() {
    const places = new Map();
    if (document.hidden || matchMedia("(prefers-reduced-motion: reduce)").matches) return places;
    for (const [id, card] of this.cards) {
      places.set(id, { state: card.state, box: card.root.getBoundingClientRect() });
    }
    return places;
  }

  /** Moves each card that has changed its lane from where it was. */
  animate(before) {
    if (before.size === 0) return;
    for (const [id, card] of this.cards) {
      const was = before.get(id);
      if (!was) {
        card.root.animate([{ opacity: 0 }, { opacity: 1 }], MOVE_MS);
      } else if (was.state !== card.state) {
        const box = card.root.getBoundingClientRect();
        const move = `translate(${was.box.left - box.left}px, ${was.box.top - box.top}px)`;
        card.root.animate([{ transform: move }, { transform: "none" }], { duration: MOVE_MS, easing: "ease-in-out" });
      }
    }
  }

  /** One card of each lane is reached by tab; arrows go on from there. */
  rove() {
    for (const { list } of this.lanes.values()) {
      const cards = [...list.querySelectorAll(".card")];
      const current = cards.find((card) => card === document.activeElement) ?? cards.find((card) => card.tabIndex === 0) ?? cards[0];
      for (const card of cards) card.tabIndex = card === current ? 0 : -1;
    }
  }

  key(event) {
    const card = event.target.closest(".card");
    if (!card) return;
    const item = card.parentElement;
    const to = {
      ArrowDown: () => item.nextElementSibling,
      ArrowUp: () => item.previousElementSibling,
      Home: () => item.parentElement.firstElementChild,
      End: () => item.parentElement.lastElementChild,
      ArrowRight: () => this.beside(card, 1),
      ArrowLeft: () => this.beside(card, -1),
    }[event.key]?.();
    if (!to) return;
    event.preventDefault();
    const target = to.querySelector(".card");
    card.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }

  /** A card in the next lane that has some. */
  beside(card, step) {
    const lanes = [...this.lanes.values()].filter(({ list }) => list.firstElementChild);
    const own = lanes.findIndex(({ list }) => list.contains(card));
    const rank = [...lanes[own].list.children].indexOf(card.parentElement);
    const items = lanes[own + step]?.list.children;
    return items ? items[Math.min(rank, items.length - 1)] : null;
  }
}

class Card {
  constructor(machine) {
    this.age = element("span", { class: "age" });
    this.run = element("span", { class: "run" });
    this.what = element("span", { class: "kind" });
    this.marks = element("span", { class: "marks" });
    this.time = element("span", { class: "left", "aria-hidden": "true" });
    const name = element("span", { class: "id", title: machine.id }, short(machine.id));
    this.button = element("button", { type: "button", class: "card", tabindex: "-1", "data-id": machine.id }, name, this.age, this.run, this.what, this.marks, this.time);
    this.root = element("li", {}, this.button);
  }

  update(machine, now) {
    set(this.age, age(now - machine.since));
    if (this.machine !== machine) {
      this.machine = machine;
      this.state = machine.state;
      set(this.run, machine.run ? `run ${machine.run}` : "");
      set(this.what, `${machine.class} · ${machine.type}${machine.usage === "spot" ? " · spot" : ""}`);
      this.button.dataset.marked = machine.marks[0] ?? "";
      this.marks.replaceChildren(...machine.marks.map((mark) => element("span", { class: "mark", "data-mark": mark }, mark)));
    }
    const { since, until } = machine;
    const left = until && until > since ? Math.max(0, Math.min(1, (until - now) / (until - since))) : 0;
    this.time.style.setProperty("--left", left.toFixed(3));
  }
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function matches(machine, pool) {
  if (pool.class && machine.class !== pool.class) return false;
  if (!pool.filter) return true;
  const { id, state, run, class: size, type, usage, marks } = machine;
  return [id, state, run, size, type, usage, ...marks].some((text) => text.toLowerCase().includes(pool.filter));
}

/** The machines to draw: marked ones first, the most urgent before the others, then the latest. */
function first(machines, most) {
  const rank = ({ marks }) => (marks.length > 0 ? URGENT.indexOf(marks[0]) : URGENT.length);
  const order = (a, b) => rank(a) - rank(b) || b.since - a.since || compare(a.id, b.id);
  return machines.sort(order).slice(0, most);
}

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}
