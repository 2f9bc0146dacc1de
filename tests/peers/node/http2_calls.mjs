// The calls of tests/runtimes/http2_clients.rs by Node's http2: URL [CA] [PROXY].
import fs from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import tls from 'node:tls';

const [url, ca, proxy] = process.argv.slice(2);
const { host, hostname } = new URL(url);

// A TLS connection inside a tunnel of the proxy.
function tunnel() {
  return new Promise((resolve, reject) => {
    const request = http.request(proxy, { method: 'CONNECT', path: host, agent: false });
    request.on('error', reject);
    request.on('connect', (response, socket) => {
      if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`));
      const inside = tls.connect({ socket, servername: hostname, ALPNProtocols: ['h2'], ca: fs.readFileSync(ca) }, () => resolve(inside));
      inside.on('error', reject);
    });
    request.end();
  });
}

const options = ca ? { ca: fs.readFileSync(ca) } : {};
if (proxy) {
  const inside = await tunnel();
  options.createConnection = () => inside;
}
const session = http2.connect(url, options);

function call(method, path, body) {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ':method': method, ':path': path }, { endStream: body === undefined });
    let head;
    let text = '';
    stream.setEncoding('utf8');
    stream.on('response', (fields) => { head = fields; });
    stream.on('data', (piece) => { text += piece; });
    stream.on('error', reject);
    stream.on('end', () => resolve({ head, text, status: head[':status'] }));
    if (body !== undefined) stream.end(body);
    stream.resume();
  });
}

for (const asked of [['GET', '/hello'], ['POST', '/length', Buffer.alloc(1 << 20)], ['GET', '/not-modified']]) {
  const { text, status } = await call(...asked);
  console.log(`${text} ${status}`);
}
const { head, status } = await call('HEAD', '/hello');
console.log(`${head['content-length']} ${status}`);
const together = Array.from({ length: 20 }, (_, number) => call('GET', `/together/${number + 1}`));
for (const response of await Promise.all(together)) console.log(`${response.text.length} ${response.status}`);
session.close();
