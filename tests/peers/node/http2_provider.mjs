// A provider that speaks HTTP/2. Without arguments it does so without TLS; otherwise its arguments are the files of a
// key and a certificate, and `both` if it speaks HTTP/1.1 too. Prints its port.
import fs from 'node:fs';
import http2 from 'node:http2';

const [key, cert, both] = process.argv.slice(2);
const options = key === undefined ? {} : { key: fs.readFileSync(key), cert: fs.readFileSync(cert), allowHTTP1: both !== undefined };
const server = key === undefined ? http2.createServer() : http2.createSecureServer(options);
let connections = 0;
server.on('session', (session) => {
  connections += 1;
  session.on('error', () => {});
});

const answers = {
  // What has arrived, with the number of connections so far.
  '/echo': (request, response, body) => {
    const { ':path': path, ...fields } = request.headers;
    response.setHeader('content-type', 'application/json');
    const { httpVersion, method, trailers } = request;
    response.end(JSON.stringify({ httpVersion, method, path: path ?? request.url, fields, body, trailers, connections }));
  },
  '/trailers': (request, response, body) => {
    response.writeHead(200, { 'content-type': request.headers['content-type'] ?? 'text/plain', trailer: 'grpc-status' });
    response.write(body);
    response.addTrailers({ 'grpc-status': '0', 'grpc-message': 'done' });
    response.end();
  },
  '/hints': (request, response) => {
    response.writeEarlyHints({ link: '</style.css>; rel=preload' });
    response.end('ok');
  },
  '/204': (request, response) => {
    response.writeHead(204);
    response.end();
  },
  '/304': (request, response) => {
    response.writeHead(304, { etag: '"a"' });
    response.end();
  },
  '/length': (request, response) => {
    response.writeHead(200, { 'content-length': '5' });
    response.end(request.method === 'HEAD' ? undefined : 'hello');
  },
  '/size': (request, response, body) => response.end(String(body.length)),
  // An error of gRPC, which is a response of fields alone.
  '/status': (request, response) => {
    response.stream.respond(
      { ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '5', 'grpc-message': 'no such thing' },
      { endStream: true },
    );
  },
};

server.on('request', (request, response) => {
  const path = request.url.split('?')[0];
  if (path.startsWith('/big/')) {
    // Zeros, as fast as they are read.
    let left = Number(path.slice(5));
    const write = () => {
      while (left > 0) {
        const piece = Buffer.alloc(Math.min(left, 65536));
        left -= piece.length;
        if (!response.write(piece)) {
          response.once('drain', write);
          return;
        }
      }
      response.end();
    };
    request.resume();
    write();
    return;
  }
  let body = '';
  request.setEncoding('latin1');
  request.on('data', (piece) => { body += piece; });
  request.on('end', () => (answers[path] ?? answers['/echo'])(request, response, body));
  request.on('error', () => {});
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
