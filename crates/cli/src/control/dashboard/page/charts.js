// Drawings over time. What a colour says, a shape and a word say as well.

import { clock, counted, element, shape, span, wait } from "./elements.js";

const HEIGHT = 170;
const LEFT = 54;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 24;
const BARS = 24;
const SERIES = [
  ["running", "running"],
  ["idle", "idle"],
  ["starting", "created or claimed"],
  ["tickets", "tickets in the pool"],
];

export class Charts {
  constructor(root) {
    this.charts = [
      new Chart("Pool", SERIES, drawPool),
      new Chart("Machines given to runs", [["warm", "warm"], ["cold", "cold"]], drawGiven),
      new Chart("Waiting time of runs", [["warm", "all warm"], ["cold", "some cold"], ["failed", "failed"]], drawWaiting),
    ];
    root.append(...this.charts.map((chart) => chart.root));
    new ResizeObserver(() => this.pool && this.draw(this.pool)).observe(root);
  }

  draw(pool) {
    this.pool = pool;
    for (const chart of this.charts) chart.draw(pool);
  }
}

class Chart {
  constructor(title, series, render) {
    this.render = render;
    this.svg = shape("svg", { role: "img", height: HEIGHT });
    this.says = element("p", { class: "quiet says" });
    const legend = series.map(([kind, name]) => element("li", { "data-kind": kind }, sign(kind), name));
    this.root = element("figure", {}, element("figcaption", {}, title), this.svg, element("ul", { class: "legend" }, ...legend), this.says);
    this.title = title;
  }

  draw(pool) {
    const width = Math.max(240, Math.round(this.root.clientWidth) - 26);
    const { shapes, says, drawn } = this.render(pool, width);
    const key = `${width} ${drawn}`;
    if (key === this.drawn) return;
    this.drawn = key;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.setAttribute("aria-label", `${this.title}: ${says}`);
    this.svg.replaceChildren(...shapes());
    this.says.textContent = says;
  }
}

function sign(kind) {
  const box = shape("svg", { width: 22, height: 12, "aria-hidden": "true" });
  const isLine = SERIES.some(([name]) => name === kind);
  box.append(isLine ? shape("path", { class: `line ${kind}`, d: "M1 6H21" }) : mark(kind, 11, 6));
  return box;
}

/** A shape for one call: a circle, a square or a cross. */
function mark(kind, x, y) {
  if (kind === "warm") return shape("circle", { class: "point warm", cx: x, cy: y, r: 4 });
  if (kind === "cold") return shape("rect", { class: "point cold", x: x - 3.5, y: y - 3.5, width: 7, height: 7 });
  return shape("path", { class: "point failed", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` });
}

function drawPool(pool, width) {
  const { samples } = pool;
  if (samples.length < 2) return nothing("nothing has been read yet", width);
  const [first, last] = [samples[0], samples.at(-1)];
  const most = Math.max(4, ...samples.flatMap((sample) => SERIES.map(([kind]) => sample[kind])));
  const now = SERIES.map(([kind, name]) => `${last[kind].toLocaleString("en")} ${name}`);
  const says = `${now.join(", ")}; since ${clock(first.at)}`;
  const shapes = () => {
    const x = scale(first.at, last.at, LEFT, width - RIGHT);
    const y = scale(0, most, HEIGHT - BOTTOM, TOP);
    // More points than this are closer together than a screen shows.
    const step = Math.ceil(samples.length / 400);
    const shown = samples.filter((sample, n) => (samples.length - 1 - n) % step === 0);
    const longest = step * Math.max(15000, 5 * pool.pauseMs);
    const lines = SERIES.map(([kind]) => {
      // While no page was open nothing was read, and nothing is drawn.
      const gap = (n) => n === 0 || shown[n].at - shown[n - 1].at > longest;
      const points = shown.map((sample, n) => `${gap(n) ? "M" : "L"}${x(sample.at).toFixed(1)} ${y(sample[kind]).toFixed(1)}`);
      return shape("path", { class: `line ${kind}`, d: points.join("") });
    });
    return [...grid(y, [0, most / 2, most], Math.round, width), ...times(x, first.at, last.at), ...lines];
  };
  return { shapes, says, drawn: `${last.at} ${samples.length}` };
}

function drawGiven(pool, width) {
  const calls = pool.calls.filter((call) => !call.failed && call.warm + call.cold > 0);
  if (calls.length === 0) return nothing("no call of provision since yesterday", width);
  const [start, end] = range(pool);
  const slot = (end - start) / BARS;
  const bars = Array.from({ length: BARS }, () => ({ warm: 0, cold: 0 }));
  for (const { at, warm, cold } of calls) {
    const bar = bars[Math.min(BARS - 1, Math.floor((at - start) / slot))];
    bar.warm += warm;
    bar.cold += cold;
  }
  const sum = (kind) => calls.reduce((total, call) => total + call[kind], 0);
  const most = Math.max(4, ...bars.map(({ warm, cold }) => warm + cold));
  const says = `${sum("warm")} warm, ${sum("cold")} cold in ${counted(calls.length, "call", "calls")}; each bar is ${span(slot)}`;
  const shapes = () => {
    const x = scale(start, end, LEFT, width - RIGHT);
    const y = scale(0, most, HEIGHT - BOTTOM, TOP);
    const wide = Math.max(2, x(start + slot) - x(start) - 2);
    const drawn = bars.flatMap(({ warm, cold }, n) => {
      const left = x(start + n * slot) + 1;
      const part = (kind, from, count) =>
        count === 0 ? [] : [shape("rect", { class: `bar ${kind}`, x: left, y: y(from + count), width: wide, height: y(from) - y(from + count) })];
      return [...part("warm", 0, warm), ...part("cold", warm, cold)];
    });
    return [...grid(y, [0, most / 2, most], Math.round, width), ...times(x, start, end), ...drawn];
  };
  return { shapes, says, drawn: `${start} ${Math.round(end / 5000)} ${calls.length}` };
}

function drawWaiting(pool, width) {
  const { calls } = pool;
  if (calls.length === 0) return nothing("no call of provision since yesterday", width);
  const [start, end] = range(pool);
  const sorted = calls.filter((call) => !call.failed).map((call) => call.ms).sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  const failed = calls.length - sorted.length;
  const says = sorted.length === 0 ? `${failed} failed` : `half of the calls within ${wait(at(0.5))}, 95 % within ${wait(at(0.95))}${failed > 0 ? `; ${failed} failed` : ""}`;
  const shapes = () => {
    const x = scale(start, end, LEFT, width - RIGHT - 4);
    // From milliseconds to minutes: each line is ten times the one below it.
    const low = Math.floor(Math.log10(Math.max(10, Math.min(...calls.map((call) => call.ms)))));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...calls.map((call) => call.ms), 1))));
    const log = scale(low, high, HEIGHT - BOTTOM, TOP);
    const y = (ms) => log(Math.min(high, Math.max(low, Math.log10(Math.max(ms, 1)))));
    const lines = Array.from({ length: high - low + 1 }, (_, n) => 10 ** (low + n));
    const points = calls.map((call) => {
      const kind = call.failed ? "failed" : call.cold > 0 ? "cold" : "warm";
      const point = mark(kind, x(call.at), y(call.ms));
      point.append(shape("title", {}, `run ${call.run}: ${wait(call.ms)}`));
      return point;
    });
    return [...grid(y, lines, brief, width), ...times(x, start, end), ...points];
  };
  return { shapes, says, drawn: `${start} ${Math.round(end / 5000)} ${calls.length} ${calls.at(-1).at}` };
}

/** From the first call, or from a minute ago, until now. */
function range(pool) {
  const end = pool.at ?? pool.now();
  return [Math.min(pool.calls[0].at, end - 60000), end + 1];
}

function nothing(says, width) {
  const text = () => [shape("text", { class: "none", x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, says)];
  return { shapes: text, says, drawn: says };
}

function brief(ms) {
  if (ms < 1000) return `${ms} ms`;
  return ms < 100000 ? `${ms / 1000} s` : `${Math.round(ms / 60000)} min`;
}

function scale(from, to, start, end) {
  const factor = to > from ? (end - start) / (to - from) : 0;
  return (value) => start + (value - from) * factor;
}

function grid(y, values, words, width) {
  return values.flatMap((value) => [
    shape("path", { class: "grid", d: `M${LEFT} ${y(value).toFixed(1)}H${width - RIGHT}` }),
    shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(words(value))),
  ]);
}

function times(x, start, end) {
  const words = (at) => (end - start > 20 * 3600000 ? `${new Date(at).getDate()}. ${clock(at).slice(0, 5)}` : end - start > 600000 ? clock(at).slice(0, 5) : clock(at));
  return [
    shape("text", { x: x(start), y: HEIGHT - 6, "text-anchor": "start" }, words(start)),
    shape("text", { x: x(end), y: HEIGHT - 6, "text-anchor": "end" }, words(end)),
  ];
}
