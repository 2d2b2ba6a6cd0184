// What the pool has cost, as ondeck cost tells it. It takes a look at all events of a time, so it is read when the reader asks.

import { counted, dollars, element, link, wait } from "./elements.js";

const RUNS = 8;

export class Money {
  constructor(root, says, since, button, open) {
    Object.assign(this, { root, says, since, button, open });
    this.turn = 0;
    button.addEventListener("click", () => this.ask());
    since.addEventListener("change", () => this.ask());
  }

  async ask() {
    const turn = ++this.turn;
    this.says.textContent = "reading the events";
    let said;
    let shown = [];
    try {
      const answer = await fetch(`/cost?since=${encodeURIComponent(this.since.value)}`);
      const told = await answer.json();
      if (answer.ok) [said, shown] = [total(told), this.parts(told)];
      else said = `no account: ${told.message}`;
    } catch (error) {
      said = `no account: ${error.message}`;
    }
    // Another time may have been asked for meanwhile.
    if (turn !== this.turn) return;
    this.says.textContent = said;
    this.root.replaceChildren(...shown);
  }

  parts(account) {
    const { classes, runs, machines } = account;
    if (machines.length === 0) return [];
    const dearest = [...runs].sort((one, other) => other.cost.totalDollars - one.cost.totalDollars).slice(0, RUNS);
    const ofClasses = classes.map(({ resourceClass, cost }) => row(resourceClass ?? "unknown", cost, true));
    const ofRuns = dearest.map(({ runId, cost }) => row(runId ? link(runId, this.open) : "unknown", cost, false));
    const parts = [table("By class", ["class", "time", "busy", "idle", "booting", "cost"], ofClasses)];
    if (ofRuns.length > 0) parts.push(table(runs.length > RUNS ? `The ${RUNS} dearest runs of ${runs.length}` : "By run", ["run", "time", "busy", "booting", "cost"], ofRuns));
    return [element("div", { class: "accounts" }, ...parts), element("ul", { class: "present" }, ...remarks(account).map((text) => element("li", {}, text)))];
  }
}

/** An amount, with a mark if a part of it is a guess. */
function amount(cost) {
  const mark = cost.isApproximate ? "~" : "";
  const all = cost.bootingSeconds + cost.idleSeconds + cost.busySeconds;
  if (cost.unpricedSeconds > 0 && cost.unpricedSeconds >= all) return "no price";
  const unpriced = cost.unpricedSeconds > 0 ? ` + ${time(cost.unpricedSeconds)} without a price` : "";
  return `${mark}${dollars(cost.totalDollars)}${unpriced}`;
}

function time(seconds) {
  return wait(1000 * seconds);
}

function total({ total: cost, machines, isPartial, since }) {
  const all = cost.bootingSeconds + cost.idleSeconds + cost.busySeconds;
  const begins = isPartial ? `; earlier events are too many, or deleted, so the account begins at ${since}` : "";
  return `${amount(cost)} for ${time(all)} of ${counted(machines.length, "machine", "machines")}${begins}`;
}

function row(name, cost, hasIdle) {
  const all = cost.bootingSeconds + cost.idleSeconds + cost.busySeconds;
  const idle = hasIdle ? [dollars(cost.idleDollars)] : [];
  const cells = [time(all), dollars(cost.busyDollars), ...idle, dollars(cost.bootingDollars), amount(cost)];
  return element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((text) => element("td", {}, text)));
}

function table(caption, heads, rows) {
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const body = element("table", { class: "account" }, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, body);
}

/** What the amounts mean, in sentences. */
function remarks({ alwaysCold, githubHosted, prices, total: cost, unpriced }) {
  const saved = (amount) => (amount < 0 ? `the pool cost ${dollars(-amount)} more` : `the pool saved ${dollars(amount)}`);
  const cold = alwaysCold
    ? `Against a new machine for each hand-over: ${saved(alwaysCold.savingDollars)}, and spared runs ${time(alwaysCold.waitingSavedSeconds)} of waiting.`
    : "Against a new machine for each hand-over: not known, because no hand-over and boot were seen.";
  const hosted = githubHosted
    ? `Against GitHub-hosted runners: ${saved(githubHosted.savingDollars)}. ${counted(githubHosted.jobs, "job", "jobs")} would have cost ${dollars(githubHosted.wouldCostDollars)}.`
    : "Against GitHub-hosted runners: not known, because no job can be compared.";
  const guess = cost.isApproximate ? [`~ Events are missing: ${dollars(cost.uncertainDollars)} of it is a guess.`] : [];
  const without = unpriced.map(({ instanceType, machines }) => `Not counted, because ${instanceType ?? "an unknown type"} has no price: ${counted(machines, "machine", "machines")}.`);
  return [cold, hosted, ...guess, ...without, `By list prices in ${prices.region} of ${prices.asOf}; ondeck cost says more, and takes other prices.`];
}
