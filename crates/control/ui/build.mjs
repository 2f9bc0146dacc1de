// Bundles the page into a directory: `node build.mjs [DIRECTORY]`, by default ../src/page, from where it is embedded.
// The same sources and package-lock.json give the same bytes.
import { readFileSync } from "node:fs";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const FIRST_LOAD_BYTES_MAX = 100 * 1024;
const BUNDLED = ["preact", "uplot"];

const out = process.argv[2] ?? new URL("../src/page", import.meta.url).pathname;
const at = (path) => new URL(path, import.meta.url);

/** The licences of the bundled packages, which their terms require in every copy. */
const licences = BUNDLED.map((name) => {
  const { version } = JSON.parse(readFileSync(at(`node_modules/${name}/package.json`), "utf8"));
  return `${name} ${version}\n\n${readFileSync(at(`node_modules/${name}/LICENSE`), "utf8").trim()}`;
}).join("\n\n");

await mkdir(out, { recursive: true });
const shared = { bundle: true, minify: true, target: "es2022", legalComments: "none", charset: "utf8", logLevel: "warning" };
await build({
  ...shared,
  entryPoints: [at("src/main.tsx").pathname],
  outfile: `${out}/page.js`,
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  banner: { js: `/*! Built from crates/control/ui. It contains:\n\n${licences.replaceAll("*/", "* /")}\n*/` },
});
await build({ ...shared, entryPoints: [at("src/page.css").pathname], outfile: `${out}/page.css` });
// Minifiers may leave trailing spaces, which editors remove.
for (const name of ["page.js", "page.css"]) {
  const text = await readFile(`${out}/${name}`, "utf8");
  await writeFile(`${out}/${name}`, `${text.trimEnd()}\n`);
}
await copyFile(at("src/index.html"), `${out}/index.html`);

let total = 0;
for (const name of ["index.html", "page.css", "page.js"]) {
  const bytes = await readFile(`${out}/${name}`);
  const compressed = gzipSync(bytes, { level: 9 }).length;
  total += compressed;
  console.log(`${name.padEnd(10)} ${String(bytes.length).padStart(7)} bytes, ${String(compressed).padStart(6)} gzipped`);
}
console.log(`first load ${total} bytes gzipped, at most ${FIRST_LOAD_BYTES_MAX}`);
if (total > FIRST_LOAD_BYTES_MAX) process.exit(1);
