// Bundles the page into a directory: `node build.mjs [DIRECTORY]`, by default ../src/page, from where it is embedded.
// The same sources and package-lock.json give the same bytes.
import { readFileSync } from "node:fs";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const FIRST_LOAD_BYTES_MAX = 100 * 1024;
const EDITOR_BYTES_MAX = 250 * 1024;
const FIRST_LOAD = ["index.html", "page.css", "page.js"];

const out = process.argv[2] ?? new URL("../src/page", import.meta.url).pathname;
const at = (path) => new URL(path, import.meta.url);

/** The licences of the bundled packages, which their terms require in every copy. */
function licences(metafile) {
  const names = Object.keys(metafile.inputs).map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]);
  return [...new Set(names)].filter((name) => name !== undefined).sort().map((name) => {
    const { version } = JSON.parse(readFileSync(at(`node_modules/${name}/package.json`), "utf8"));
    return `${name} ${version}\n\n${readFileSync(at(`node_modules/${name}/LICENSE`), "utf8").trim()}`;
  }).join("\n\n");
}

await mkdir(out, { recursive: true });
const shared = { bundle: true, minify: true, target: "es2022", legalComments: "none", charset: "utf8", logLevel: "warning" };
for (const [source, name] of [["src/main.tsx", "page.js"], ["src/editor/editor.ts", "editor.js"]]) {
  const { outputFiles, metafile } = await build({
    ...shared,
    entryPoints: [at(source).pathname],
    format: "esm",
    jsx: "automatic",
    jsxImportSource: "preact",
    write: false,
    metafile: true,
  });
  const banner = `/*! Built from crates/control/ui. It contains:\n\n${licences(metafile).replaceAll("*/", "* /")}\n*/`;
  await writeFile(`${out}/${name}`, `${banner}\n${outputFiles[0].text}`);
}
await build({ ...shared, entryPoints: [at("src/page.css").pathname], outfile: `${out}/page.css` });
// Minifiers may leave trailing spaces, which editors remove.
for (const name of ["page.js", "page.css", "editor.js"]) {
  const text = await readFile(`${out}/${name}`, "utf8");
  await writeFile(`${out}/${name}`, `${text.trimEnd()}\n`);
}
await copyFile(at("src/index.html"), `${out}/index.html`);

/** Prints the size of some files, and returns the sum of what is sent compressed. */
async function measure(names) {
  let total = 0;
  for (const name of names) {
    const bytes = await readFile(`${out}/${name}`);
    const compressed = gzipSync(bytes, { level: 9 }).length;
    total += compressed;
    console.log(`${name.padEnd(10)} ${String(bytes.length).padStart(7)} bytes, ${String(compressed).padStart(6)} gzipped`);
  }
  return total;
}

const first = await measure(FIRST_LOAD);
console.log(`first load ${first} bytes gzipped, at most ${FIRST_LOAD_BYTES_MAX}`);
const editor = await measure(["editor.js"]);
console.log(`editor, on demand ${editor} bytes gzipped, at most ${EDITOR_BYTES_MAX}`);
if (first > FIRST_LOAD_BYTES_MAX || editor > EDITOR_BYTES_MAX) process.exit(1);
