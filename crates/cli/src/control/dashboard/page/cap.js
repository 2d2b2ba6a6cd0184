// What is left today of max-spend-per-day. Without a cap there is nothing to see.

import { dollars, element } from "./elements.js";

const BILLION = 1e9;

export class Cap {
  constructor(root) {
    this.root = root;
    this.drawn = "";
  }

  draw(pool) {
    const spend = pool.summary?.spend ?? null;
    const key = JSON.stringify(spend);
    if (key === this.drawn) return;
    this.drawn = key;
    this.root.hidden = spend === null;
    this.root.replaceChildren(...(spend ? parts(spend) : []));
  }
}

function parts({ day, spent, reserved, cap, near }) {
  const left = Math.max(0, cap - spent - reserved);
  const share = (amount) => Math.min(1, Math.max(0, amount) / cap);
  const amounts = [["spent", spent], ["reserved", reserved], ["left", left]];
  const bars = amounts.map(([kind, amount]) => {
    const part = element("span", { "data-kind": kind });
    part.style.setProperty("--share", share(amount));
    return part;
  });
  const told = amounts.map(([kind, amount]) => `${dollars(amount / BILLION)} ${kind}`);
  const all = dollars(cap / BILLION);
  const label = `Of ${all} for ${day}: ${told.join(", ")}`;
  const legend = amounts.map(([kind], n) => element("li", {}, element("span", { class: "sign", "data-kind": kind, "aria-hidden": "true" }), told[n]));
  return [
    element("h3", {}, `Cap: ${all} for ${day} (UTC)`, ...(near ? [" ", element("span", { class: "mark" }, "nearly used up")] : [])),
    element("div", { class: "shares", role: "img", "aria-label": label }, ...bars),
    element("ul", { class: "legend" }, ...legend),
    element("p", { class: "quiet" }, "By list prices on demand, also for spot. Reserved is what machines may still cost until midnight."),
  ];
}
