// The figures at the top, and what is wrong.

import { counted, element, link, short, span } from "./elements.js";

export class Overview {
  constructor(tiles, wrong, open) {
    this.tiles = tiles;
    this.wrong = wrong;
    this.open = open;
    this.drawn = "";
    this.problems = "";
  }

  draw(pool) {
    if (!pool.summary) return;
    const tiles = figures(pool);
    const text = JSON.stringify(tiles);
    if (text !== this.drawn) {
      this.drawn = text;
      this.tiles.replaceChildren(...tiles.map(tile));
    }
    const problems = JSON.stringify(pool.summary.problems);
    if (problems !== this.problems) {
      this.problems = problems;
      this.wrong.replaceChildren(...this.list(pool.summary.problems));
    }
  }

  list(problems) {
    if (problems.length === 0) return [element("li", { class: "fine" }, "Nothing.")];
    return problems.map(({ message, hint, machines, more }) => {
      const named = machines.flatMap((id) => [" ", link(id, this.open)]);
      const others = more > 0 ? ` and ${counted(more, "other", "others")}` : "";
      return element("li", {}, element("strong", {}, message), ...named, others, element("span", { class: "hint" }, hint));
    });
  }
}

function tile([name, figure, more, tone]) {
  return element(
    "div",
    { class: "tile", "data-tone": tone ?? null },
    element("dt", {}, name),
    element("dd", { class: "figure" }, figure),
    element("dd", { class: "quiet" }, more),
  );
}

/** Each with a name, the figure, what else there is to say, and whether it is bad. */
function figures(pool) {
  const { states, tickets, warm, oldestIdle, refreshed, refreshOverdue, ceilings, cost } = pool.summary;
  const count = (state) => states[state] ?? 0;
  const machines = Object.values(states).reduce((sum, n) => sum + n, 0);
  const ceiling = ceilings.find((limit) => limit.class === "");
  const limit = ceiling ? `, at most ${ceiling.max}` : "";
  const tiles = [
    ["machines", machines.toLocaleString("en"), `${count("running")} running, ${count("idle")} idle${limit}`],
    ["pool", counted(tickets, "ticket", "tickets"), byClass(pool.summary.classes)],
    warm
      ? ["warm share", `${Math.round((100 * warm.warm) / warm.handedOver)} %`, `${warm.warm} of the last ${counted(warm.handedOver, "machine", "machines")} given to runs`]
      : ["warm share", "unknown", "no machine was given to a run in 24 hours"],
    oldestIdle
      ? ["oldest idle", span(pool.now() - oldestIdle.since), short(oldestIdle.id)]
      : ["oldest idle", "none", "no machine is idle"],
    refreshed
      ? ["last full refresh", `${span(pool.now() - refreshed)} ago`, refreshOverdue ? "overdue" : "checks everything once an hour", refreshOverdue ? "bad" : null]
      : ["last full refresh", "unknown", "it failed, or never ran", "bad"],
  ];
  const unpriced = cost.unpriced > 0 ? `; without ${counted(cost.unpriced, "machine", "machines")} that have no price` : "";
  const what = cost.local ? "if these processes were EC2 machines" : "by EC2 list prices in us-east-1";
  const amount = (text) => text.replace(/^about /, "");
  tiles.push(["estimate for an hour", amount(cost.hour), `${amount(cost.idle)} of it idle; ${what}${unpriced}`]);
  return tiles;
}

function byClass(classes) {
  const some = classes.filter((known) => known.tickets > 0);
  if (some.length === 0) return "no idle machine is announced";
  const shown = some.slice(0, 4).map((known) => `${known.tickets} ${known.name}`);
  return shown.join(", ") + (some.length > 4 ? " and more" : "");
}
