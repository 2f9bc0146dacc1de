// A real authorization server for the tests of accounts. It prints its address to standard error. JSON sent to its second port changes
// its responses: `{"expires_in": 60, "status": 503, "hold": true}`; that port responds with the events so far.
import { createServer } from "node:http";
import { OAuth2Issuer, OAuth2Service } from "oauth2-mock-server";

const [clientId, clientSecret] = process.argv.slice(2);
const orders = { expires_in: 3600, status: 200, hold: false };
const held = [];
const received = [];

const issuer = new OAuth2Issuer();
await issuer.keys.generate("RS256");
const service = new OAuth2Service(issuer);

// Otherwise two tokens of the same second would be equal.
service.on("beforeTokenSigning", (token) => Object.assign(token.payload, { jti: String(received.length) }));

service.on("beforeResponse", (response, request) => {
  const basic = Buffer.from((request.headers.authorization ?? "").replace(/^Basic /, ""), "base64").toString();
  const [id, secret] = basic.split(":").map((part) => decodeURIComponent(part.replaceAll("+", " ")));
  if (id !== clientId || secret !== clientSecret) {
    response.statusCode = 401;
    response.body = { error: "invalid_client", error_description: `${secret} is wrong` };
  } else if (orders.status !== 200) {
    response.statusCode = orders.status;
    response.body = { error: "temporarily_unavailable" };
  } else {
    response.body.expires_in = orders.expires_in;
  }
  received.push({ status: response.statusCode, request: request.body, response: response.body });
});

function listen(name, handler) {
  const server = createServer(handler);
  return new Promise((resolve) =>
    server.listen(0, "127.0.0.1", () => {
      const url = `http://127.0.0.1:${server.address().port}`;
      console.error(`${name} ${url}`);
      resolve(url);
    }),
  );
}

issuer.url = await listen("listening", (request, response) => {
  const respond = () => service.requestHandler(request, response);
  if (orders.hold) {
    held.push(respond);
  } else {
    respond();
  }
});

await listen("orders", async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  Object.assign(orders, JSON.parse(body));
  if (!orders.hold) held.splice(0).forEach((respond) => respond());
  response.end(JSON.stringify({ held: held.length, received }));
});
