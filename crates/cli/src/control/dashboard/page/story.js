// The story of a run or a machine, as ondeck explain tells it.

import { element, link, wait } from "./elements.js";

const KINDS = {
  request: "asked",
  search: "search",
  wait: "waited",
  launch: "launch",
  event: "change",
  ending: "end",
  unknown: "unknown",
};

/** How the machines of EC2 and of the local backend are called. */
const MACHINE = /^i-[0-9a-f]{8,}$/;

export class Story {
  constructor() {
    this.dialog = document.getElementById("story");
    this.title = document.getElementById("story-title");
    this.body = document.getElementById("story-body");
    this.turn = 0;
    document.getElementById("story-close").addEventListener("click", () => this.dialog.close());
    document.getElementById("story-copy").addEventListener("click", (event) => this.copy(event.target));
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    this.dialog.addEventListener("close", () => {
      // It comes later than the closing: another story may be open or named by then.
      if (this.dialog.open) return;
      const isNamed = location.hash === `#${encodeURIComponent(this.id)}`;
      this.turn += 1;
      this.id = "";
      if (isNamed) history.replaceState(null, "", location.pathname);
    });
    addEventListener("hashchange", () => this.openNamed());
    this.openNamed();
  }

  /** The address may name a story, so that it can be sent to a colleague. */
  openNamed() {
    const id = named();
    if (id && id !== this.id) this.open(id);
  }

  async open(id) {
    const turn = ++this.turn;
    this.id = id;
    history.replaceState(null, "", `#${encodeURIComponent(id)}`);
    this.title.textContent = id;
    this.body.replaceChildren(element("p", { class: "quiet" }, "reading the story"));
    this.body.setAttribute("aria-busy", "true");
    if (!this.dialog.open) this.dialog.showModal();
    const told = await this.read(id);
    // Another story may have been opened meanwhile.
    if (turn !== this.turn) return;
    this.body.replaceChildren(...told);
    this.body.setAttribute("aria-busy", "false");
    this.body.scrollTop = 0;
  }

  async read(id) {
    try {
      const answer = await fetch(`/story?of=${encodeURIComponent(id)}`);
      const type = answer.headers.get("content-type") ?? "";
      if (!type.startsWith("application/json")) return this.failed(await answer.text(), "");
      const told = await answer.json();
      return answer.ok ? this.told(told) : this.failed(told.message, told.hint);
    } catch (error) {
      return this.failed(`no answer from ondeck dashboard: ${error.message}`, "");
    }
  }

  failed(message, hint) {
    return [element("p", { class: "notice" }, `There is no story: ${message}.`), hint ? element("p", { class: "quiet" }, hint) : null].filter(Boolean);
  }

  told({ subject, id, present, timeline, ledger, typicalCalls }) {
    this.title.textContent = `${subject} ${id}`;
    const parts = [
      element("h3", {}, "Now"),
      element("ul", { class: "present" }, ...present.map((sentence) => element("li", {}, ...this.linked(sentence, [], id)))),
      element("h3", {}, "What happened (UTC)"),
      element("ol", { class: "timeline" }, ...this.lines(timeline, id)),
    ];
    if (ledger.length > 0) parts.push(element("h3", {}, "How long it took"), times(ledger), compared(typicalCalls));
    return parts;
  }

  /** The lines, and each day before its first one. The times are those of the sentences, in UTC. */
  lines(timeline, id) {
    let day = "";
    return timeline.flatMap((line) => {
      const own = line.at ? line.at.slice(0, 10) : day;
      const heading = own === day ? [] : [element("li", { class: "day" }, own)];
      day = own;
      return [...heading, this.line(line, id)];
    });
  }

  line({ at, kind, text, machines }, id) {
    const time = at ? element("time", { datetime: at, title: at }, at.slice(11, 23)) : element("span", {}, "–");
    return element("li", { "data-kind": kind }, time, element("span", { class: "kind" }, KINDS[kind] ?? kind), element("span", { class: "text" }, ...this.linked(text, machines, id)));
  }

  /** A sentence in which the ids of other machines and runs open their stories. */
  linked(text, machines, id) {
    const opens = (other) => link(other, (named) => this.open(named));
    const words = text.split(/(\s+)/).map((word) => {
      const [, before, name, after] = word.match(/^(\W*)([\w-]*[\w])?(\W*)$/) ?? [null, word, undefined, ""];
      return { before, name, after, word };
    });
    const isRun = (n) => /^\d/.test(words[n].name) && /^runs?$/i.test(words[n - 2]?.word ?? "");
    const isNamed = (n) => words[n].name !== id && (machines.includes(words[n].name) || MACHINE.test(words[n].name ?? "") || isRun(n));
    const parts = words.flatMap((it, n) => (isNamed(n) ? [it.before, opens(it.name), it.after] : [it.word]));
    const missing = machines.filter((machine) => machine !== id && !words.some(({ name }) => name === machine));
    return [...parts, ...missing.flatMap((machine) => [" ", opens(machine)])];
  }

  async copy(button) {
    try {
      await navigator.clipboard.writeText(this.id);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not copied";
    }
    setTimeout(() => (button.textContent = "Copy id"), 1500);
  }
}

/** The id that the address names; empty if it names none that can be read. */
function named() {
  try {
    return decodeURIComponent(location.hash.replace(/^#/, ""));
  } catch {
    return "";
  }
}

function times(ledger) {
  const typical = (ms) => (ms === null ? "–" : wait(ms));
  const longest = Math.max(...ledger.map((row) => row.ms), 1);
  const rows = ledger.map(({ phase, ms, typicalMedianMs, typicalP95Ms }) => {
    const bar = element("span", { class: "length", "aria-hidden": "true" });
    bar.style.setProperty("--share", (ms / longest).toFixed(3));
    const cells = [wait(ms), typical(typicalMedianMs), typical(typicalP95Ms)].map((text) => element("td", {}, text));
    return element("tr", {}, element("th", { scope: "row" }, phase), ...cells, element("td", {}, bar));
  });
  const heads = ["phase", "took", "usually", "95 % within"].map((text) => element("th", { scope: "col" }, text));
  return element("table", { class: "ledger" }, element("thead", {}, element("tr", {}, ...heads, element("td"))), element("tbody", {}, ...rows));
}

function compared(calls) {
  const with_ = calls === 0 ? "no recent call of another run to compare with" : `compared with recent calls of other runs: ${calls}`;
  return element("p", { class: "quiet" }, with_);
}
