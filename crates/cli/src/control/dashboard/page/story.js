// The story of a run or a machine, as ondeck explain tells it.

import { clock, element, link, wait } from "./elements.js";

const KINDS = {
  request: "asked",
  search: "search",
  wait: "waited",
  launch: "launch",
  event: "change",
  ending: "end",
  unknown: "unknown",
};

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
      this.turn += 1;
      if (location.hash) history.replaceState(null, "", location.pathname);
    });
    addEventListener("hashchange", () => this.openNamed());
    this.openNamed();
  }

  /** The address may name a story, so that it can be sent to a colleague. */
  openNamed() {
    const id = decodeURIComponent(location.hash.replace(/^#/, ""));
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
      element("ul", { class: "present" }, ...present.map((sentence) => element("li", {}, sentence))),
      element("h3", {}, "What happened"),
      element("ol", { class: "timeline" }, ...timeline.map((line) => this.line(line, id))),
    ];
    if (ledger.length > 0) parts.push(element("h3", {}, "How long it took"), times(ledger), compared(typicalCalls));
    return parts;
  }

  line({ at, kind, text, machines }, id) {
    const others = machines.filter((machine) => machine !== id).flatMap((machine) => [" ", link(machine, (other) => this.open(other))]);
    const time = at ? element("time", { datetime: at, title: at }, clock(Date.parse(at))) : element("span", {}, "–");
    return element("li", { "data-kind": kind }, time, element("span", { class: "kind" }, KINDS[kind] ?? kind), element("span", { class: "text" }, text, ...others));
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
