// A server of gRPC by grpc-js, and its client. Messages are plain bytes.
//
//   grpc_js.mjs serve [KEY CERTIFICATE]   prints its port
//   grpc_js.mjs call TARGET [AUTHORITY]   makes calls of all kinds, and prints what each of them brought
import fs from 'node:fs';
import grpc from '@grpc/grpc-js';

const [what, ...files] = process.argv.slice(2);
const bytes = (message) => message;
const method = (path, requestStream, responseStream) => ({
  path, requestStream, responseStream,
  requestSerialize: bytes, requestDeserialize: bytes, responseSerialize: bytes, responseDeserialize: bytes,
});
const echo = {
  Call: method('/echo.Echo/Call', false, false),
  Repeat: method('/echo.Echo/Repeat', false, true),
  Join: method('/echo.Echo/Join', true, false),
  Stream: method('/echo.Echo/Stream', true, true),
  SecondTry: method('/echo.Echo/SecondTry', false, false),
};
const slow = { Never: method('/slow.Slow/Never', false, false), Endless: method('/slow.Slow/Endless', true, true) };

const compressing = { 'grpc.default_compression_algorithm': 2 };

function serve(key, certificate) {
  // Long messages would exceed a limit of the server.
  const server = new grpc.Server({ 'grpc.max_receive_message_length': -1 });
  let tries = 0;
  server.addService(echo, {
    Call(call, respond) {
      const seen = new grpc.Metadata();
      seen.set('seen', call.metadata.get('asked').join());
      const last = new grpc.Metadata();
      last.set('last-bin', Buffer.from([0, 255]));
      call.sendMetadata(seen);
      respond(null, call.request, last);
    },
    Repeat(call) {
      for (let number = 0; number < 3; number += 1) call.write(call.request);
      call.end();
    },
    Join(call, respond) {
      const pieces = [];
      call.on('data', (piece) => pieces.push(piece.toString()));
      call.on('end', () => respond(null, Buffer.from(pieces.join('+'))));
    },
    Stream(call) {
      call.on('data', (piece) => call.write(Buffer.from(piece).reverse()));
      call.on('end', () => call.end());
    },
    SecondTry(call, respond) {
      tries += 1;
      if (tries === 1) respond({ code: grpc.status.UNAVAILABLE, details: 'not yet' });
      else respond(null, Buffer.from(`${call.request} at try ${tries}`));
    },
  });
  server.addService(slow, {
    Never() {},
    Endless(call) {
      call.on('data', (piece) => call.write(piece));
      call.on('error', () => {});
    },
  });
  const credentials = key === undefined ? grpc.ServerCredentials.createInsecure()
    : grpc.ServerCredentials.createSsl(null, [{ private_key: fs.readFileSync(key), cert_chain: fs.readFileSync(certificate) }]);
  server.bindAsync('127.0.0.1:0', credentials, (error, port) => {
    if (error) throw error;
    console.log(port);
  });
}

async function call(target, authority) {
  const credentials = authority === undefined ? grpc.credentials.createInsecure()
    : grpc.credentials.createSsl(fs.readFileSync(authority));
  const client = new grpc.Client(target, credentials);
  const squeezing = new grpc.Client(target, credentials, compressing);
  const all = (stream, handle = () => {}) => new Promise((resolve, reject) => {
    const received = [];
    stream.on('data', (piece) => { received.push(piece.toString()); handle(received); });
    stream.on('error', reject);
    stream.on('end', () => resolve(received));
  });
  const unary = (of, { path }, message, metadata = new grpc.Metadata(), options = {}) => new Promise((resolve, reject) => {
    const seen = {};
    const request = of.makeUnaryRequest(path, bytes, bytes, Buffer.from(message), metadata, options, (error, response) => {
      if (error) reject(error);
      else setImmediate(() => resolve({ ...seen, response: response.toString() }));
    });
    request.on('metadata', (head) => { seen.head = head.get('seen'); });
    request.on('status', ({ metadata: last }) => { seen.last = last.get('last-bin').map((value) => [...value]); });
  });
  const failed = (promise) => promise.then(() => 'it succeeded', (error) => `${grpc.status[error.code]}: ${error.details}`);

  const asked = new grpc.Metadata();
  asked.add('asked', 'one');
  asked.add('asked', 'two');
  console.log(JSON.stringify(await unary(client, echo.Call, 'hello', asked)));
  console.log(JSON.stringify(await all(client.makeServerStreamRequest(echo.Repeat.path, bytes, bytes, Buffer.from('again')))));
  console.log(await new Promise((resolve, reject) => {
    const stream = client.makeClientStreamRequest(echo.Join.path, bytes, bytes, (error, response) => (error ? reject(error) : resolve(response.toString())));
    stream.write(Buffer.from('one'));
    stream.end(Buffer.from('two'));
  }));
  // Each message is sent once the response to the one before has arrived.
  const bidi = client.makeBidiStreamRequest(echo.Stream.path, bytes, bytes);
  bidi.write(Buffer.from('one'));
  console.log(JSON.stringify(await all(bidi, ({ length }) => (length < 20 ? bidi.write(Buffer.from(`number ${length}`)) : bidi.end()))));
  const long = 'x'.repeat(2 << 20);
  console.log((await unary(squeezing, echo.Call, long)).response === long);
  console.log((await unary(client, echo.SecondTry, 'served')).response);
  console.log(await failed(unary(client, echo.Call, 'too many')));
  console.log((await failed(unary(client, slow.Never, 'late', new grpc.Metadata(), { deadline: Date.now() + 300 }))).split(':')[0]);
  const endless = client.makeBidiStreamRequest(slow.Endless.path, bytes, bytes);
  endless.write(Buffer.from('one'));
  console.log(await failed(all(endless, () => endless.cancel())));
  client.close();
  squeezing.close();
}

await { serve, call }[what](...files);
