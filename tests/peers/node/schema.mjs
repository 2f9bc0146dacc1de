// Validates documents against the JSON Schema of their format.
import { readFileSync } from "node:fs";
import alf from "alf-validator";
import har from "har-validator";

/** Returns the errors of each file. `format` is `har`, or a version of ALF: 1.0.0, 1.1.0, 2.0.0. */
export function run(format, ...files) {
  const validate = (document) => (format === "har" ? har.har(document) : alf(document, format));
  const problems = files.map((file) =>
    validate(JSON.parse(readFileSync(file, "utf8"))).then(
      () => [],
      ({ errors, message }) => errors ?? [message],
    ),
  );
  return Promise.all(problems);
}
