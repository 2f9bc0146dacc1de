// A minimal reverse proxy with Node's http module and persistent connections to the provider.
// Arguments: the port to listen on, the provider's port.
import http from "node:http";

const [port, providerPort] = process.argv.slice(2).map(Number);
const agent = new http.Agent({ keepAlive: true, maxSockets: 512 });

const server = http.createServer((request, response) => {
  const { method, url: path, headers } = request;
  const call = http.request({ agent, host: "127.0.0.1", port: providerPort, method, path, headers: { ...headers, connection: "keep-alive" } });
  call.on("response", (answer) => {
    const { connection, "keep-alive": _, ...fields } = answer.headers;
    response.writeHead(answer.statusCode, fields);
    answer.pipe(response);
  });
  call.on("error", () => {
    if (!response.headersSent) response.writeHead(502);
    response.end();
  });
  request.pipe(call);
});
server.keepAliveTimeout = 0;
server.listen({ port, host: "127.0.0.1", backlog: 4096 });
process.on("SIGTERM", () => process.exit(0));
