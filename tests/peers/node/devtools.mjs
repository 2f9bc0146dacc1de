// Imports HAR files into Chromium's DevTools.
import { readFileSync } from "node:fs";
import { WebSocket } from "undici";

/** Returns the requests that are listed for each file. `browser` is the address of DevTools. */
export async function run(browser, ...files) {
  const socket = new WebSocket(browser);
  await new Promise((resolve, reject) => Object.assign(socket, { onopen: resolve, onerror: reject }));

  const waiting = new Map();
  socket.onmessage = ({ data }) => {
    const answer = JSON.parse(data);
    waiting.get(answer.id)?.(answer);
  };
  let asked = 0;
  async function call(method, params, sessionId) {
    const id = ++asked;
    socket.send(JSON.stringify({ id, method, params, sessionId }));
    const { result, error } = await new Promise((resolve) => waiting.set(id, resolve));
    if (error ?? result.exceptionDetails) throw new Error(JSON.stringify(error ?? result.exceptionDetails));
    return result;
  }

  // Runs in Chromium: imports a file like the Network panel.
  async function read(text) {
    const { HARFormat, Importer } = await import("/devtools/models/har/har.js");
    const requests = Importer.Importer.requestsFromHARLog(new HARFormat.HARRoot(JSON.parse(text)).log);
    return Promise.all(
      requests.map(async (request) => {
        const content = await request.requestContentData();
        return {
          url: request.url(),
          method: request.requestMethod,
          status: request.statusCode,
          start: request.startTime,
          duration: request.duration,
          headers: request.responseHeaders.length,
          mimeType: request.mimeType,
          size: request.resourceSize,
          content: content.error ?? (content.isTextContent ? content.text : content.base64),
        };
      }),
    );
  }

  // Any page of the browser's own server works: the code of DevTools is loaded from there.
  const url = `http://${new URL(browser).host}/json/version`;
  const { browserContextId } = await call("Target.createBrowserContext", { disposeOnDetach: true });
  const { targetId } = await call("Target.createTarget", { url, browserContextId });
  const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
  // Until it is loaded, the page is empty and cannot import code.
  for (let state, left = 4_800; state !== "http:complete"; await new Promise((resolve) => setTimeout(resolve, 50))) {
    if (--left === 0) throw new Error(`no page at ${url}`);
    const told = call("Runtime.evaluate", { expression: "location.protocol + document.readyState" }, sessionId);
    // The empty page may be replaced during the request.
    state = await told.then(({ result }) => result.value).catch(() => undefined);
  }
  const lists = [];
  for (const file of files) {
    const expression = `(${read})(${JSON.stringify(readFileSync(file, "utf8"))})`;
    const { result } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true }, sessionId);
    lists.push(result.value);
  }
  socket.close();
  return lists;
}
