// Opens streams whose long responses it does not read, and makes calls beside them: on their connection, and on another one.
//
//   slow_readers.mjs URL COUNT CALLS
//
// Prints the number of calls that were answered, and then the number of responses that were read to their end.
import http2 from 'node:http2';

const [url, count, calls] = process.argv.slice(2);
const LONG = 4 << 20;
// The window of the connection has room for the calls beside the streams that are not read.
const settings = { initialWindowSize: 16384 };
const sessions = [http2.connect(url, { settings }), http2.connect(url, { settings })];
for (const session of sessions) {
  session.on('error', (error) => { throw error; });
  await new Promise((resolve) => session.on('remoteSettings', resolve));
  session.setLocalWindowSize(16 << 20);
}

function open(session, path) {
  const stream = session.request({ ':path': path });
  stream.on('error', (error) => { throw error; });
  return new Promise((resolve) => stream.on('response', () => resolve(stream)));
}

async function read(stream) {
  let length = 0;
  for await (const piece of stream) length += piece.length;
  return length;
}

const slow = await Promise.all(Array.from({ length: Number(count) }, () => open(sessions[0], `/big/${LONG}`)));
let answered = 0;
for (let call = 0; call < calls; call += 1) {
  for (const session of sessions) {
    if (await read(await open(session, '/echo')) > 0) answered += 1;
  }
}
console.log(answered);
const lengths = await Promise.all(slow.map(read));
console.log(lengths.filter((length) => length === LONG).length);
for (const session of sessions) session.close();
