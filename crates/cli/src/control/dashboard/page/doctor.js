// What ondeck doctor finds. It is asked when something else is wrong than before, and when the reader asks.

import { clock, counted, element, link } from "./elements.js";

/** The least time between two examinations that the reader has not asked for. */
const PAUSE_MS = 15000;
const WORDS = [["error", "errors"], ["warning", "warnings"], ["note", "notes"]];
/** The most machines that a finding names. */
const NAMED = 20;
/** The findings that are about machines, whose stories can be told. */
const ABOUT_MACHINES = /^(machines|orphans)/;

export class Doctor {
  constructor(list, says, unchecked, button, open) {
    Object.assign(this, { list, says, unchecked, button, open });
    this.asking = false;
    this.asked = 0;
    this.problems = null;
    button.addEventListener("click", () => this.ask());
  }

  draw(pool) {
    if (!pool.summary || document.hidden) return;
    const problems = JSON.stringify(pool.summary.problems.map(({ kind, message }) => [kind, message]));
    if (problems === this.problems || this.asking || Date.now() - this.asked < PAUSE_MS) return;
    this.problems = problems;
    this.ask();
  }

  async ask() {
    if (this.asking) return;
    this.asking = true;
    this.asked = Date.now();
    this.button.disabled = true;
    this.says.textContent = "examining the pool";
    try {
      const answer = await fetch("/doctor");
      const told = await answer.json();
      if (answer.ok) this.show(told);
      else this.says.textContent = `not examined: ${told.message}`;
    } catch (error) {
      this.says.textContent = `not examined: ${error.message}`;
    } finally {
      this.asking = false;
      this.button.disabled = false;
    }
  }

  show({ at, doctor: { findings, checked, notChecked } }) {
    const counts = WORDS.map(([one, many]) => [findings.filter(({ severity }) => severity === one).length, one, many]);
    const some = counts.filter(([count]) => count > 0).map(([count, one, many]) => counted(count, one, many));
    this.says.textContent = `${some.join(", ") || "nothing found"} at ${clock(at)}, ${counted(checked.length, "check", "checks")}`;
    const none = element("li", { class: "fine" }, "Nothing.");
    this.list.replaceChildren(...(findings.length > 0 ? findings.map((finding) => this.finding(finding)) : [none]));
    this.unchecked.replaceChildren(...notChecked.map(({ what, needs }) => element("li", {}, `Not checked: ${what}, which needs ${needs}.`)));
  }

  finding({ id, severity, what, why, fix, about }) {
    const machines = ABOUT_MACHINES.test(id) ? about : [];
    const named = machines.slice(0, NAMED).flatMap((machine) => [" ", link(machine, this.open)]);
    const others = machines.length > NAMED ? ` and ${counted(machines.length - NAMED, "other", "others")}` : "";
    const head = element("span", { class: "severity" }, `${severity}: ${id}`);
    const words = element("strong", {}, what);
    return element("li", { "data-severity": severity }, head, " ", words, ...named, others, element("span", { class: "hint" }, `${why}. Fix: ${fix}`));
  }
}
