// Calls over one HTTP/2 connection without TLS, as its argument says. Prints what arrived, as JSON.
import http2 from 'node:http2';

const [url, what] = process.argv.slice(2);
const session = http2.connect(url);
session.on('error', (error) => { throw error; });

// Makes a call, and returns its response with the informational ones and the trailers.
function call(fields, { body = [], trailers } = {}) {
  return new Promise((resolve, reject) => {
    const hasBody = body.length > 0 || trailers !== undefined;
    const stream = session.request(fields, { endStream: !hasBody, waitForTrailers: trailers !== undefined });
    const seen = { informational: [], trailers: null, text: '', reset: null };
    stream.setEncoding('utf8');
    stream.on('headers', (head) => seen.informational.push(head[':status']));
    stream.on('response', (head) => { seen.status = head[':status']; seen.head = head; });
    stream.on('trailers', (fields) => { seen.trailers = { ...fields }; });
    stream.on('data', (piece) => { seen.text += piece; });
    stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    stream.on('error', (error) => { seen.reset = error.code; });
    stream.on('close', () => { seen.code = stream.rstCode; resolve(seen); });
    body.forEach((piece) => stream.write(piece));
    if (hasBody) stream.end();
  });
}

const deeds = {
  // Many calls beside each other.
  async many() {
    const calls = Array.from({ length: 90 }, (_, number) => call({ ':path': `/origin/${number}` }));
    return (await Promise.all(calls)).map((seen) => [seen.status, seen.text]);
  },
  async head() {
    const seen = await call({ ':method': 'HEAD', ':path': '/origin/' });
    return [seen.status, seen.head['content-length'], seen.text];
  },
  async trailers() {
    const seen = await call(
      { ':method': 'POST', ':path': '/origin/' },
      { body: ['one', 'two'], trailers: { 'grpc-status': '0' } },
    );
    return [seen.status, seen.text, seen.trailers['grpc-status'], seen.head['transfer-encoding'] ?? null];
  },
  // A call of gRPC, whose status is in the trailers.
  async grpc() {
    const seen = await call(
      { ':method': 'POST', ':path': '/origin/trailers', 'content-type': 'application/grpc', te: 'trailers' },
      { body: ['hello'] },
    );
    return [seen.status, seen.text, seen.trailers['grpc-status'], seen.head['transfer-encoding'] ?? null];
  },
  async informational() {
    const seen = await call({ ':path': '/origin/' });
    return [seen.informational, seen.status, seen.text];
  },
  async expecting() {
    const seen = await call(
      { ':method': 'POST', ':path': '/origin/', expect: '100-continue', 'content-length': '3' },
      { body: ['abc'] },
    );
    return [seen.informational, seen.status, seen.text];
  },
  async cookies() {
    const seen = await call({ ':path': '/origin/', cookie: ['a=1', 'b=2', 'c=3'] });
    return [seen.status, seen.text];
  },
  async cut() {
    const seen = await call({ ':path': '/origin/' });
    return [seen.status, seen.text, seen.code];
  },
  async bodiless() {
    const seen = await call({ ':path': '/origin/' });
    return [seen.status, seen.text, seen.code];
  },
  async tunnel() {
    const stream = session.request({ ':method': 'CONNECT', ':authority': process.argv[4] });
    stream.setEncoding('utf8');
    const status = await new Promise((resolve) => stream.on('response', (head) => resolve(head[':status'])));
    let text = '';
    stream.on('data', (piece) => { text += piece; });
    stream.end('ping');
    await new Promise((resolve) => stream.on('close', resolve));
    return [status, text];
  },
};

console.log(JSON.stringify(await deeds[what]()));
session.close();
