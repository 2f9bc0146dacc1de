// A provider that echoes the bytes of WebSockets. Without arguments it speaks HTTP/2 without TLS. Otherwise its arguments are
// the files of a key and a certificate, `both` if it speaks HTTP/1.1 too, or `-`, and `silent` if its settings do not announce
// RFC 8441. Prints its port.
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import http2 from 'node:http2';

const [key, cert, both, silent] = process.argv.slice(2);
const settings = { enableConnectProtocol: silent === undefined };
const server = key === undefined
  ? http2.createServer({ settings })
  : http2.createSecureServer({ settings, key: fs.readFileSync(key), cert: fs.readFileSync(cert), allowHTTP1: both === 'both' });
server.on('session', (session) => session.on('error', () => {}));

server.on('stream', (stream, head) => {
  stream.on('error', () => {});
  if (head[':protocol'] !== 'websocket') {
    stream.respond({ ':status': 200 });
    stream.end('no WebSocket');
    return;
  }
  const fields = { 'x-version': '2', 'x-path': head[':path'], 'x-key': head['sec-websocket-key'] ?? 'none' };
  const chosen = head['sec-websocket-protocol'];
  if (chosen !== undefined) fields['sec-websocket-protocol'] = chosen;
  switch (head[':path']) {
    case '/refused':
      stream.respond({ ':status': 403, ...fields });
      stream.end('not you');
      return;
    case '/reset':
      stream.respond({ ':status': 200, ...fields });
      stream.once('data', (data) => stream.write(data, () => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR)));
      return;
    default:
      stream.respond({ ':status': 200, ...fields });
      stream.pipe(stream);
  }
});

server.on('upgrade', (request, socket) => {
  const made = createHash('sha1').update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11');
  const fields = `Sec-WebSocket-Accept: ${made.digest('base64')}\r\nx-version: 1.1\r\n`;
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n${fields}\r\n`);
  socket.on('error', () => {});
  socket.pipe(socket);
});

server.listen(0, '127.0.0.1', () => console.log(server.address().port));
