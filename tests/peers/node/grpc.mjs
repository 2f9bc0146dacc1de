// Makes gRPC calls over one HTTP/2 connection without TLS: those of the list in its second argument, one after the other.
// Prints what each of them brought, as JSON.
import http2 from 'node:http2';

const [url, list] = process.argv.slice(2);
const session = http2.connect(url);
session.on('error', (error) => { throw error; });

// A message with the five bytes in front of it that gRPC wants.
function framed(text) {
  const message = Buffer.from(text);
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

function messages(bytes) {
  const found = [];
  for (let at = 0; at + 5 <= bytes.length;) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    found.push(bytes.subarray(at + 5, end).toString());
    at = end;
  }
  return found;
}

function call({ path, fields = {}, sent = ['ping'] }) {
  return new Promise((resolve) => {
    const stream = session.request({
      ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers', ...fields,
    });
    const seen = { status: 0, head: {}, trailers: {}, trailersOnly: false };
    const pieces = [];
    stream.on('response', (head, flags) => {
      seen.status = head[':status'];
      seen.head = { ...head };
      seen.trailersOnly = (flags & http2.constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    });
    stream.on('trailers', (trailers) => { seen.trailers = { ...trailers }; });
    stream.on('data', (piece) => pieces.push(piece));
    stream.on('error', () => {});
    stream.on('close', () => {
      const body = Buffer.concat(pieces);
      resolve({
        ...seen,
        body: body.toString('latin1'),
        messages: seen.status === 200 ? messages(body) : [],
        grpcStatus: seen.trailers['grpc-status'] ?? seen.head['grpc-status'] ?? null,
        reset: stream.rstCode,
      });
    });
    sent.forEach((text) => stream.write(framed(text)));
    stream.end();
  });
}

const brought = [];
for (const asked of JSON.parse(list)) brought.push(await call(asked));
console.log(JSON.stringify(brought));
session.close();
