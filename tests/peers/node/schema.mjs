// Validates documents against the JSON Schema of their format: prints the errors of each, as JSON.
//
//     node schema.mjs FORMAT FILE...      FORMAT is `har`, or a version of ALF: 1.0.0, 1.1.0, 2.0.0
import { readFileSync } from "node:fs";
import alf from "alf-validator";
import har from "har-validator";

const [format, ...files] = process.argv.slice(2);
const validate = (document) => (format === "har" ? har.har(document) : alf(document, format));
const problems = files.map((file) =>
  validate(JSON.parse(readFileSync(file, "utf8"))).then(
    () => [],
    ({ errors, message }) => errors ?? [message],
  ),
);
console.log(JSON.stringify(await Promise.all(problems)));
