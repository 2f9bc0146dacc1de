// Clients: undici or Node's own `http`, by the first argument. Input and output are those of clients.py.
import { Agent, get as httpGet } from "node:http";
import { createInterface } from "node:readline";
import { Agent as UndiciAgent, request } from "../javascript/node_modules/undici/index.js";

const SECONDS = 30;
const hex = (bytes) => (bytes.length ? Buffer.from(bytes, "latin1").toString("hex") : "-");

function adler32(bytes) {
    let [a, b] = [1, 0];
    for (const byte of bytes) {
        a = (a + byte) % 65521;
        b = (b + a) % 65521;
    }
    return b * 65536 + a;
}

function seen(status, fields, body) {
    const parts = ["R", hex(String(status)), "-", body.length, adler32(body), hex(body.subarray(0, 512))];
    return [...parts, ...fields.map(([name, value]) => `${hex(name)}:${hex(value)}`)].join(",");
}

async function withUndici(urls) {
    const dispatcher = new UndiciAgent({ headersTimeout: SECONDS * 1000, bodyTimeout: SECONDS * 1000 });
    const results = await each(urls, async (url) => {
        const { statusCode, headers, body } = await request(url, { dispatcher });
        const fields = Object.entries(headers).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
        return seen(statusCode, fields, Buffer.from(await body.arrayBuffer()));
    });
    dispatcher.destroy();
    return results;
}

async function withHttp(urls) {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const results = await each(urls, (url) => new Promise((resolve, reject) => {
        const call = httpGet(url, { agent, timeout: SECONDS * 1000 }, (response) => {
            const chunks = [];
            response.on("data", (chunk) => chunks.push(chunk));
            response.on("error", reject);
            response.on("end", () => {
                const { rawHeaders, statusCode } = response;
                const fields = rawHeaders.flatMap((name, at) => (at % 2 ? [] : [[name, rawHeaders[at + 1]]]));
                resolve(seen(statusCode, fields, Buffer.concat(chunks)));
            });
        });
        call.on("error", reject);
        call.on("timeout", () => call.destroy(new Error("too late")));
    }));
    agent.destroy();
    return results;
}

async function each(urls, get) {
    const results = [];
    for (const url of urls) results.push(await get(url).catch(() => "E"));
    return results;
}

process.on("uncaughtException", () => {});
const client = { undici: withUndici, "node-http": withHttp }[process.argv[2]];
let waiting = [];
let running = 0;
function begin() {
    while (running < 32 && waiting.length) {
        const [number, base] = waiting.shift().split(" ");
        running += 1;
        client([`${base}/q${number}-r`, `${base}/q${number}-ok`]).then((results) => {
            process.stdout.write(`C ${number} ${results.join(" ")}\n`);
            running -= 1;
            begin();
        });
    }
}
createInterface({ input: process.stdin }).on("line", (line) => {
    waiting.push(line);
    begin();
});
