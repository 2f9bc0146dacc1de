// Runs the modules of scenarios in one process, as its start takes longer than most of them, and starts one Chromium for all.
//
//     node host.mjs CHROMIUM
//
// A request is a line of JSON, `{ id, module, args }`, and has an answer, `{ id, result }` or `{ id, error }`. All ends with the input.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** Modules that get the address of DevTools before their arguments. */
const IN_CHROMIUM = ["page", "devtools"];

let chromium;
let profile;

/** Starts Chromium. Each page has a context of its own, with its own storage. */
function startChromium() {
  profile = mkdtempSync(join(tmpdir(), "egret-chromium-"));
  const options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-port=0"];
  // It ends when the two additional pipes are closed, and so with this process, however that ends. A kill would only reach the shell's
  // script by which some systems start it.
  options.push("--remote-debugging-pipe");
  // One page hides another, and all are to be drawn.
  const drawn = ["--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding"];
  chromium = spawn(process.argv[2], [...options, ...drawn, `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"] });
  return new Promise((resolve, reject) => {
    let printed = "";
    chromium.on("error", reject);
    chromium.on("exit", (code) => reject(new Error(`Chromium ended with ${code}: ${printed}`)));
    chromium.stderr.on("data", (text) => {
      printed = (printed + text).slice(-4096);
      const address = /DevTools listening on (\S+)/.exec(printed);
      if (address !== null) resolve(address[1]);
    });
  });
}

let address;

async function answer({ id, module, args }) {
  try {
    const { run } = await import(`./${module}.mjs`);
    const before = IN_CHROMIUM.includes(module) ? [await (address ??= startChromium())] : [];
    return { id, result: (await run(...before, ...args)) ?? null };
  } catch (error) {
    return { id, error: String(error.stack ?? error) };
  }
}

/** Ends Chromium, and removes its profile once it is gone. */
function end() {
  if (chromium === undefined) process.exit();
  chromium.on("exit", () => {
    rmSync(profile, { recursive: true, force: true, maxRetries: 3 });
    process.exit();
  });
  chromium.stdio[3].end();
  chromium.stdio[4].destroy();
}

// What a script has left behind concerns no other one.
process.on("unhandledRejection", (error) => console.error(error));
createInterface({ input: process.stdin })
  .on("line", async (line) => process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`))
  .on("close", end);
