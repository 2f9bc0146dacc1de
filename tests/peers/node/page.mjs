// Opens pages in Chromium and runs a script on them.
import { readFileSync, writeFileSync } from "node:fs";
import { Agent, WebSocket, fetch } from "undici";

/** Maximum time that the page takes to become as expected: long, since two cores run all tests at once. */
const WAIT_MS = 240_000;
/** Maximum time of a command of the browser, which may wait for a promise of the page or for a frame. */
const ANSWER_MS = 240_000;
/** The same for one try to take a picture. The browser waits for a frame, which it may never draw, so it is asked again. */
const PICTURE_MS = 20_000;
const PICTURE_TRIES = 12;
/** The modifier of DevTools for the control key. */
const CONTROL = 2;
const LOOK_MS = 50;

const AsyncFunction = (async () => {}).constructor;

/** Runs a script with `page`, `args` and `fetch`, and returns what it returns. `browser` is the address of DevTools. */
export async function run(browser, script, ...args) {
  // Its connections end with it, though other scripts run in this process.
  const dispatcher = new Agent();
  const socket = new WebSocket(browser);
  try {
    await new Promise((resolve, reject) => Object.assign(socket, { onopen: resolve, onerror: reject }));
    const own = (url, options) => fetch(url, { ...options, dispatcher });
    return await new AsyncFunction("page", "args", "fetch", script)(await pageOver(socket), args, own);
  } finally {
    socket.close();
    await dispatcher.destroy();
  }
}

/** Returns a page of its own in the browser at the other end of a socket. */
async function pageOver(socket) {
  const waiting = new Map();
  /** URLs that the page has requested. */
  const requested = [];
  /** Errors that the browser reported: exceptions, refused content, and errors on the console. */
  const errors = [];

  socket.onmessage = ({ data }) => {
    const { id, method, params, ...answer } = JSON.parse(data);
    if (id !== undefined) return waiting.get(id)?.(answer);
    if (method === "Network.requestWillBeSent") requested.push(params.request.url);
    if (method === "Runtime.exceptionThrown") errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Log.entryAdded" && params.entry.level === "error") errors.push(params.entry.text);
  };

  let asked = 0;
  async function call(method, params = {}, sessionId = session, answerMs = ANSWER_MS) {
    const id = ++asked;
    socket.send(JSON.stringify({ id, method, params, sessionId }));
    let deadline;
    const { result, error } = await new Promise((resolve) => {
      waiting.set(id, resolve);
      deadline = setTimeout(() => resolve({ error: { message: `no answer within ${answerMs} ms` } }), answerMs);
    });
    clearTimeout(deadline);
    waiting.delete(id);
    if (error) throw new Error(`${method}: ${error.message}`);
    return result;
  }

  let session;
  // Other scenarios have pages in the same browser. A context ends with the connection that made it.
  const { browserContextId } = await call("Target.createBrowserContext", { disposeOnDetach: true });
  const { targetId } = await call("Target.createTarget", { url: "about:blank", browserContextId });
  session = (await call("Target.attachToTarget", { targetId, flatten: true })).sessionId;
  for (const domain of ["Page", "Network", "Runtime", "Log"]) await call(`${domain}.enable`);
  await call("Emulation.setFocusEmulationEnabled", { enabled: true });
  await call("Performance.enable", { timeDomain: "threadTicks" });
  await call("Page.setDownloadBehavior", { behavior: "deny" });

  const page = {
    requested,
    errors,

    /** Opens an address, and waits until the document is loaded. */
    async open(url) {
      await call("Page.navigate", { url });
      await page.until(`/^(http|file)/.test(location.href) && document.readyState === "complete"`);
    },

    /** Evaluates an expression in the page. */
    async evaluate(expression) {
      const { result, exceptionDetails } = await call("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    },

    /** Waits until an expression is true, and returns its value. */
    async until(expression) {
      const end = Date.now() + WAIT_MS;
      for (;;) {
        const value = await page.evaluate(expression).catch(() => undefined);
        if (value) return value;
        if (Date.now() > end) {
          const seen = await page.evaluate("document.body.innerText").catch(() => "");
          throw new Error(`waited for ${expression}\n${errors.join("\n")}\n${seen}`);
        }
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      }
    },

    /** Waits until the page shows a text. */
    shows: (text) => page.until(`document.body.innerText.includes(${JSON.stringify(text)})`),

    /** The element that a selector names, and whose text or label begins with `text`, as an expression. */
    element: (selector, text = "") =>
      `[...document.querySelectorAll(${JSON.stringify(selector)})].find((found) => (found.innerText || found.ariaLabel || "").trim().startsWith(${JSON.stringify(text)}))`,

    /** Waits for an element, and calls a function with it in the same step, as the page may replace the element at any time.
     * The function returns true if the element is not ready. */
    async act(element, call) {
      await page.until(`${element} !== undefined`);
      const end = Date.now() + WAIT_MS;
      const acted = `((found) => found !== undefined && !((${call})(found)))(${element})`;
      while (!(await page.evaluate(acted))) {
        if (Date.now() > end) throw new Error(`waited for ${element}`);
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      }
    },

    async click(selector, text) {
      await page.act(page.element(selector, text), "(found) => found.disabled || found.click()");
    },

    /** Replaces the text of a field, as typing does. */
    async type(selector, value) {
      await page.act(page.element(selector), `(field) => {
        Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set.call(field, ${JSON.stringify(value)});
        field.dispatchEvent(new Event("input", { bubbles: true }));
      }`);
    },

    /** Replaces the text of the editor, as somebody does who selects all of it and pastes. */
    async write(text) {
      await page.until(`document.querySelector(".cm-content") !== null`);
      await page.evaluate(`document.querySelector(".cm-content").focus()`);
      await page.key("a", "KeyA", 65, CONTROL);
      await page.evaluate(`(() => {
        const clipboardData = new DataTransfer();
        clipboardData.setData("text/plain", ${JSON.stringify(text)});
        document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
      })()`);
    },

    /** The text in the editor, which draws the lines in view. */
    written: () => page.evaluate(`[...document.querySelectorAll(".cm-line")].map((line) => line.textContent).join("\\n")`),

    /** Moves the pointer to the middle of an element. */
    async point(selector, text) {
      const found = await page.until(`(({ x, y, width, height }) => ({ x: x + width / 2, y: y + height / 2 }))(${page.element(selector, text)}.getBoundingClientRect())`);
      await call("Input.dispatchMouseEvent", { type: "mouseMoved", ...found });
    },

    /** Presses a key. */
    async key(key, code = key, keyCode = 0, modifiers = 0) {
      const event = { key, code, windowsVirtualKeyCode: keyCode, modifiers };
      await call("Input.dispatchKeyEvent", { type: "rawKeyDown", ...event });
      if (keyCode === 13) await call("Input.dispatchKeyEvent", { type: "char", text: "\r", ...event });
      await call("Input.dispatchKeyEvent", { type: "keyUp", ...event });
    },

    /** Presses the keys of a text, with no pause between them. */
    async typeKeys(text) {
      const press = (type, key) => call("Input.dispatchKeyEvent", { type, key, ...(type === "keyDown" && { text: key }) });
      await Promise.all([...text].flatMap((key) => [press("keyDown", key), press("keyUp", key)]));
    },

    /** Sets the size of the window, and the colours that the system prefers. */
    async look(width, height = 900, scheme = "light") {
      page.width = width;
      await call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 });
      await call("Emulation.setEmulatedMedia", {
        features: [{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }],
      });
    },

    /** Returns the elements that are wider than the window. */
    tooWide: () =>
      page.evaluate(`document.documentElement.scrollWidth <= innerWidth ? [] :
        [...document.querySelectorAll("body *")].filter((found) => found.getBoundingClientRect().right > innerWidth + 1)
          .map((found) => found.tagName + "." + found.className).slice(0, 9)`),

    /** Returns what axe-core finds: each rule that is violated, with the elements. */
    async axe() {
      if (!(await page.evaluate("window.axe !== undefined"))) {
        const source = readFileSync(new URL(import.meta.resolve("axe-core/axe.min.js")), "utf8");
        await call("Runtime.evaluate", { expression: source });
      }
      return page.evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
        violations.map(({ id, nodes }) => id + ": " + nodes.map(({ target, any }) => target.join(" ") + " " + any.map(({ message }) => message).join()).join("; ")))`);
    },

    /** The processor time of the page's main thread so far, in milliseconds. */
    async cpuMs() {
      const { metrics } = await call("Performance.getMetrics");
      return 1000 * metrics.find(({ name }) => name === "TaskDuration").value;
    },

    /** Waits for so long, for what has no end to wait for. */
    pass: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),

    async screenshot(file, { whole = true } = {}) {
      const draw = () => call("Page.captureScreenshot", { format: "png", captureBeyondViewport: whole }, session, PICTURE_MS);
      let { data } = await draw().catch(() => ({}));
      for (let left = PICTURE_TRIES - 1; left > 0 && !data; left--) {
        await call("Page.bringToFront");
        ({ data } = await draw().catch((error) => (left > 1 ? {} : Promise.reject(error))));
      }
      writeFileSync(file, Buffer.from(data, "base64"));
    },
  };
  return page;
}
