// Opens WebSockets in streams of an HTTP/2 connection (RFC 8441), as its arguments say: a URL, a path, and what to do. Prints
// what came of it, as JSON. HTTPS_PROXY names a proxy whose tunnel carries the connection.
import http from 'node:http';
import http2 from 'node:http2';
import tls from 'node:tls';

const [url, path, what] = process.argv.slice(2);
const secure = { rejectUnauthorized: false, ALPNProtocols: ['h2'] };

// Resolves to a TLS connection in a tunnel through the proxy.
function tunnel(proxy) {
  const { host } = new URL(url);
  return new Promise((resolve, reject) => {
    http.request(proxy, { method: 'CONNECT', path: host }).on('error', reject).on('connect', (_, socket) => {
      const secured = tls.connect({ socket, servername: 'localhost', ...secure }, () => resolve(secured));
    }).end();
  });
}

const socket = process.env.HTTPS_PROXY && await tunnel(process.env.HTTPS_PROXY);
const session = http2.connect(url, socket ? { createConnection: () => socket } : secure);
session.on('error', (error) => { throw error; });
const settings = await new Promise((resolve) => session.once('remoteSettings', resolve));

// Opens a stream for a protocol. Resolves to it, with the head of the response.
function open(protocol = 'websocket', fields = {}) {
  const stream = session.request({
    ':method': 'CONNECT', ':protocol': protocol, ':path': path, 'sec-websocket-version': '13', ...fields,
  });
  stream.received = Buffer.alloc(0);
  stream.on('data', (piece) => {
    stream.received = Buffer.concat([stream.received, piece]);
    stream.emit('more');
  });
  stream.on('error', () => {});
  stream.closed_with = new Promise((resolve) => stream.on('close', () => resolve(stream.rstCode)));
  stream.ended = new Promise((resolve) => stream.on('end', resolve));
  return new Promise((resolve, reject) => {
    stream.on('response', (head) => resolve({ stream, head }));
    stream.on('close', () => reject(new Error(`no response: ${stream.rstCode}`)));
  });
}

// Resolves to the next bytes.
async function take(stream, count) {
  while (stream.received.length < count) await new Promise((resolve) => stream.once('more', resolve));
  const taken = stream.received.subarray(0, count);
  stream.received = stream.received.subarray(count);
  return taken;
}

// A client's frame, with a mask that does not change the payload.
function frame(opcode, payload) {
  return Buffer.concat([Buffer.from([0x80 | opcode, 0x80 | payload.length, 0, 0, 0, 0]), payload]);
}

const deeds = {
  // Sends messages, and ends with the closing handshake.
  async messages() {
    const { stream, head } = await open();
    const seen = [];
    for (const text of ['hello', 'a longer text that comes back as it went']) {
      stream.write(frame(1, Buffer.from(text)));
      const [, length] = await take(stream, 2);
      seen.push((await take(stream, length)).toString());
    }
    stream.write(frame(8, Buffer.from([3, 232])));
    const closing = [...await take(stream, 4)];
    await stream.ended;
    stream.end();
    return [settings.enableConnectProtocol, head[':status'], head['sec-websocket-accept'] ?? null, seen, closing, await stream.closed_with];
  },
  // Sends bytes to a provider that echoes them, and ends its side first.
  async bytes() {
    const { stream, head } = await open('websocket', { 'sec-websocket-protocol': 'chat', 'sec-websocket-key': 'its own' });
    stream.end('hello');
    await stream.ended;
    return [head[':status'], head['sec-websocket-protocol'] ?? null, stream.received.toString(), await stream.closed_with];
  },
  // Only the head of the response.
  async status() {
    const { stream, head } = await open();
    stream.end();
    await stream.ended;
    return [head[':status'], head['x-egret-error'] ?? null];
  },
  async others() {
    const statuses = [];
    for (const protocol of ['webtransport', 'connect-udp', 'WebSocket']) {
      const { stream, head } = await open(protocol);
      stream.end();
      await stream.ended;
      statuses.push([head[':status'], head['x-egret-error']]);
    }
    return statuses;
  },
  // Waits for one message of the provider, and resets the stream.
  async reset() {
    const { stream } = await open();
    stream.write('hello');
    await take(stream, 5);
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await stream.closed_with;
    return 'reset';
  },
  // Waits for the end that the provider makes, or the gateway.
  async wait() {
    const { stream, head } = await open();
    stream.write('hello');
    await take(stream, 5);
    console.log('open');
    return [head[':status'], await stream.closed_with];
  },
};

console.log(JSON.stringify(await deeds[what]()));
session.destroy();
