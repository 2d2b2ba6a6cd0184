// Elements and words that all parts of the page use. Texts of the pool only ever become text nodes.

const SVG = "http://www.w3.org/2000/svg";

/** An element with these attributes and children. An attribute that is null is left out. */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same in a drawing. */
export function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** A length of time in one or two units, as the program's other commands write it. */
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return rest(minutes, "min", seconds % 60, "s", minutes < 10);
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return rest(hours, "h", minutes % 60, "min", true);
  return rest(Math.floor(hours / 24), "d", hours % 24, "h", true);
}

function rest(large, unit, small, smallUnit, exact) {
  return exact && small > 0 ? `${large} ${unit} ${small} ${smallUnit}` : `${large} ${unit}`;
}

/** A length of time in one unit, for where there is little room. */
export function age(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (seconds < 60) return `${seconds} s`;
  if (minutes < 60) return `${minutes} min`;
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} d`;
}

/** An amount of money, as the program's other commands write it. */
export function dollars(amount) {
  const size = Math.abs(amount);
  const sign = amount < 0 ? "-" : "";
  if (size === 0) return "$0";
  if (size < 0.00005) return "<$0.0001";
  return `${sign}$${size < 0.99995 ? size.toFixed(4) : size.toFixed(2)}`;
}

/** A waiting time: finer than `span` where it is short. */
export function wait(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : span(ms);
}

/** The time of day, in the time zone of the reader. */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour12: false });
}

/** A number of things. */
export function counted(count, one, many) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** A button that opens the story of a run or a machine. */
export function link(id, open) {
  return element("button", { type: "button", class: "link", title: id, click: () => open(id) }, id);
}

/** The end of a long id tells machines apart. */
export function short(id) {
  return id.length > 16 ? `…${id.slice(-12)}` : id;
}
