// What has changed, the latest first, with filters.

import { clock, element, link } from "./elements.js";

const SHOWN = 150;

/** How each state sounds as something that happens. */
const VERBS = {
  created: "was launched",
  claimed: "was claimed",
  running: "was given to its run",
  idle: "returned to the pool",
  preserved: "is kept for people",
  terminated: "was terminated",
};

const KINDS = {
  "hand-over": ({ kind, to }) => kind === "state" && to === "running",
  claim: ({ kind, to }) => kind === "state" && to === "claimed",
  launch: ({ kind, to }) => kind === "state" && to === "created",
  return: ({ kind, to }) => kind === "state" && to === "idle",
  end: ({ kind, to }) => kind === "state" && to === "terminated",
  mark: ({ kind }) => kind === "mark",
};

/** What no other change has. Numbers begin anew when the program does. */
const named = ({ number, at, id }) => `${number} ${at} ${id}`;

export class Changes {
  constructor(body, kind, open) {
    this.body = body;
    this.kind = kind;
    this.open = open;
    this.drawn = "";
    this.rows = new Map();
  }

  draw(pool) {
    const matching = pool.changes.filter((change) => this.matches(change, pool));
    const shown = matching.slice(-SHOWN).reverse();
    const ends = [shown[0], shown.at(-1)].map((change) => change && named(change));
    const key = `${shown.length} ${ends} ${this.kind.value}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const rows = new Map(shown.map((change) => [named(change), this.rows.get(named(change)) ?? this.row(change)]));
    this.rows = rows;
    const none = pool.changes.length === 0 ? "Nothing has changed since the first reading." : "No change matches.";
    this.body.replaceChildren(...(shown.length > 0 ? rows.values() : [element("tr", {}, element("td", { colspan: 5, class: "quiet" }, none))]));
  }

  matches(change, pool) {
    const isOfKind = KINDS[this.kind.value];
    if (isOfKind && !isOfKind(change)) return false;
    if (pool.class && change.class !== pool.class) return false;
    const texts = [change.id, change.run, change.class, change.from, change.to];
    return !pool.filter || texts.some((text) => text.toLowerCase().includes(pool.filter));
  }

  row(change) {
    const { at, id, run, kind, from, to, skipped } = change;
    const words = kind === "mark" ? `is ${to} now` : VERBS[to] ?? to;
    const before = kind === "state" && from ? ` (was ${from}${skipped ? "; steps between were not seen" : ""})` : "";
    return element(
      "tr",
      { "data-to": to, "data-kind": kind },
      element("td", { class: "time" }, clock(at)),
      element("td", {}, link(id, this.open)),
      element("td", {}, element("span", { class: "dot", "aria-hidden": "true" }), words, element("span", { class: "quiet" }, before)),
      element("td", {}, run ? link(run, this.open) : ""),
      element("td", {}, change.class),
    );
  }
}
