// The calls of tests/runtimes/http2_clients.rs by undici, with `allowH2`: URL CA [PROXY].
import fs from 'node:fs';
import { Agent, ProxyAgent, request } from 'undici';

const [url, ca, proxy] = process.argv.slice(2);
const options = { allowH2: true, connections: 1 };
const trust = { ca: fs.readFileSync(ca), allowH2: true };
const dispatcher = proxy ? new ProxyAgent({ ...options, uri: proxy, requestTls: trust }) : new Agent({ ...options, connect: trust });

async function call(method, path, body) {
  const { statusCode, headers, body: content } = await request(url + path, { dispatcher, method, body });
  return { status: statusCode, headers, text: await content.text() };
}

for (const asked of [['GET', '/hello'], ['POST', '/length', Buffer.alloc(1 << 20)], ['GET', '/not-modified']]) {
  const { text, status } = await call(...asked);
  console.log(`${text} ${status}`);
}
const { headers, status } = await call('HEAD', '/hello');
console.log(`${headers['content-length']} ${status}`);
const together = Array.from({ length: 20 }, (_, number) => call('GET', `/together/${number + 1}`));
for (const response of await Promise.all(together)) console.log(`${response.text.length} ${response.status}`);
await dispatcher.close();
