// Node's HTTP server: reports each request that it has understood on standard output, before it responds.
import { createServer } from "node:http";

const hex = (bytes) => (bytes.length ? Buffer.from(bytes, "latin1").toString("hex") : "-");

function adler32(bytes) {
    let [a, b] = [1, 0];
    for (const byte of bytes) {
        a = (a + byte) % 65521;
        b = (b + a) % 65521;
    }
    return b * 65536 + a;
}

const server = createServer((request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("error", () => {});
    request.on("end", () => {
        const body = Buffer.concat(chunks);
        const fields = [];
        for (let at = 0; at < request.rawHeaders.length; at += 2)
            fields.push(`${hex(request.rawHeaders[at])}:${hex(request.rawHeaders[at + 1])}`);
        const start = body.subarray(0, 512);
        const line = ["R", hex(request.method), hex(request.url), body.length, adler32(body), hex(start), ...fields].join(" ");
        process.stdout.write(line + "\n", () => {
            response.setHeader("x-echo", String(request.headers["x-case"] ?? "-").replace(/[^a-z0-9-]/g, ""));
            response.end("ok\n");
        });
    });
});
server.on("clientError", (error, socket) => {
    if (socket.writable) socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
});
server.listen(Number(process.argv[2]), "127.0.0.1");
