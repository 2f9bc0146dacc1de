// What a script of the remedy `script` sees. Everything is frozen, and nothing outlives a call.
//
//   function onRequest(request: EgretRequest): EgretDecision | void
//   function onResponse(request: EgretRequest, response: EgretResponse): EgretDecision | void

/** Header fields. Names are case-insensitive. Each character of a value is one byte, as in `fetch`. */
interface EgretHeaders {
  /** The first value, or null. */
  get(name: string): string | null;
  /** All values, in order. */
  getAll(name: string): string[];
  has(name: string): boolean;
  /** All names in lower case, each once. */
  names(): string[];
  /** Replaces all values of that name. */
  set(name: string, value: string | number | boolean): void;
  /** Adds a value and keeps the others of that name. */
  append(name: string, value: string | number | boolean): void;
  delete(name: string): void;
}

/** Query parameters. Names and values are decoded and encoded. */
interface EgretQuery {
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string): boolean;
  names(): string[];
  set(name: string, value: string | number | boolean): void;
  append(name: string, value: string | number | boolean): void;
  delete(name: string): void;
  /** The query as it is sent, without the `?`. */
  toString(): string;
}

/** The request, without the credential of an account. It can be changed in `onRequest` only. */
interface EgretRequest {
  readonly method: string;
  readonly scheme: string;
  readonly host: string;
  /** Path relative to the provider's URL, percent-encoded, without the query. */
  path: string;
  readonly query: EgretQuery;
  readonly headers: EgretHeaders;
  /** The body as text, null if there is none. Needs `bodies`. */
  get body(): string | null;
  set body(value: string);
  /** The body parsed as JSON, null if there is none. Needs `bodies`. */
  json(): any;
  /** Parameters that the flow's path captures. */
  readonly params: Readonly<Record<string, string>>;
  readonly consumer: string | null;
  /** Name of the provider in the config. */
  readonly provider: string;
}

/** The provider's response, with secrets of accounts masked. */
interface EgretResponse {
  readonly status: number;
  readonly headers: EgretHeaders;
  /** The body as text, if it is JSON. Needs `bodies`. */
  get body(): string | null;
  set body(value: string);
  /** The body parsed as JSON, null if there is none. Needs `bodies`. */
  json(): any;
}

/** The result of `respond` or `refuse`. It counts if the function returns it. */
declare class EgretDecision { private constructor(); }

interface EgretCrypto {
  hash(algorithm: "sha256" | "sha512" | "sha1", text: string, encoding?: "hex" | "base64" | "base64url"): string;
  hmac(algorithm: "sha256" | "sha512" | "sha1", key: string, text: string, encoding?: "hex" | "base64" | "base64url"): string;
  /** From the gateway's random numbers, which are not meant for keys. */
  randomUUID(): string;
}

/** Responds in place of the provider. */
declare function respond(response?: {
  status?: number;
  headers?: Record<string, string | string[]>;
  body?: string;
}): EgretDecision;
/** Refuses the request with a problem document (`script-refused`). */
declare function refuse(problem?: { status?: number; detail?: string }): EgretDecision;
declare const crypto: EgretCrypto;
/** The `secrets` of the remedy, by name. */
declare const secrets: Readonly<Record<string, string>>;
/** Base64 of a text whose characters are bytes. */
declare function btoa(bytes: string): string;
declare function atob(encoded: string): string;
