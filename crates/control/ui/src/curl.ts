// Messages as commands and as text.
import type { HarEntry } from "./api";

/** Fields that curl sets by itself, or that describe the connection. */
const LEFT_OUT = ["host", "content-length", "connection", "transfer-encoding", "accept-encoding"];

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Writes a request as a curl command. Values that were hidden in the recording stay hidden. */
export function curl(request: HarEntry["request"]): string {
  // Otherwise curl reads brackets as a list of URLs.
  const globs = /[[\]{}]/.test(request.url) ? "--globoff " : "";
  const parts = [`curl ${globs}${quoted(request.url)}`];
  if (request.method !== "GET") parts.push(`--request ${quoted(request.method)}`);
  for (const { name, value } of request.headers) {
    if (!LEFT_OUT.includes(name.toLowerCase())) parts.push(`--header ${quoted(`${name}: ${value}`)}`);
  }
  const body = request.postData;
  if (body?.text && body.encoding !== "base64") parts.push(`--data-raw ${quoted(body.text)}`);
  return parts.join(" \\\n  ");
}

/** Formats a body for reading: JSON is indented, Base64 is named as such. */
export function pretty(text: string, type: string, encoding: string | undefined): string {
  if (encoding === "base64") return `(Base64) ${text}`;
  if (!/\bjson\b/i.test(type)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
