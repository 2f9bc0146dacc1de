// Prepares a fresh context: adds the host's objects, removes what a script must not have, bounds the native
// functions that do not ask for the time, and freezes all of it. Returns the function that runs a script.
(function (native, secrets, source) {
  'use strict';

  const { defineProperty, freeze, getOwnPropertyDescriptor, getPrototypeOf, create, keys } = Object;
  const { apply, construct, ownKeys } = Reflect;
  const { isArray } = Array;

  // Longer arrays cannot be searched, joined or sorted; none fits into the memory, unless it has holes.
  const LENGTH_MAX = 1000000;
  // Characters compared by one search, at about one nanosecond for each.
  const SEARCH_MAX = 2000000;
  // Cost after which the time is asked for.
  const COST_MAX = 20000;

  const define = (object, key, value) =>
    defineProperty(object, key, { value, writable: true, enumerable: false, configurable: true });

  // Native functions ask for the time only between calls, and a loop only now and then. Once the time is over, each
  // charge ends in the error, so that a loop which catches it gets nothing done.
  let cost = 0;
  const charge = (amount) => {
    cost += amount;
    if (cost > COST_MAX) {
      native.check();
      cost = 0;
    }
  };

  // The host copies the texts that it takes and gives, and hashes them, at about a nanosecond for each character.
  const counted = (act) => (...values) => {
    let amount = 1;
    for (let at = 0; at < values.length; at += 1) if (typeof values[at] === 'string') amount += values[at].length;
    charge(amount);
    const given = apply(act, undefined, values);
    if (typeof given === 'string') cost += given.length;
    return given;
  };
  const host = create(null);
  for (const key of keys(native)) host[key] = counted(native[key]);

  const text = (value, what) => {
    if (value === undefined || value === null) throw new TypeError(`${what} must be a text`);
    return `${value}`;
  };

  const wrap = (object, key, guard) => {
    const native = object[key];
    const wrapper = {
      [key](...values) {
        guard(this, values);
        return apply(native, this, values);
      },
    }[key];
    define(object, key, wrapper);
  };

  const searched = (self, values) => {
    if (typeof self !== 'string') throw new TypeError('only a text can be searched');
    const wanted = values[0];
    // A regular expression asks for the time itself.
    if (typeof wanted === 'object' && wanted !== null) return;
    values[0] = `${wanted}`;
    const amount = (self.length * values[0].length) / 32 + self.length / 8;
    if (amount > SEARCH_MAX) throw new RangeError('the texts are too long to search');
    charge(amount);
  };
  for (const key of ['indexOf', 'lastIndexOf', 'includes', 'split', 'replace', 'replaceAll']) {
    wrap(String.prototype, key, searched);
  }
  const copied = (self) => charge(typeof self === 'string' ? self.length / 8 : 1);
  for (const key of ['toUpperCase', 'toLowerCase', 'trim', 'match', 'matchAll', 'search']) {
    wrap(String.prototype, key, copied);
  }
  // A loop of these runs out of memory rather than time, which takes longer.
  wrap(String.prototype, 'repeat', (self, values) => charge((`${self}`.length * values[0]) / 8 || 1));
  for (const key of ['padStart', 'padEnd']) wrap(String.prototype, key, (self, values) => charge(values[0] / 8 || 1));

  const bounded = (array) => {
    if (array.length > LENGTH_MAX) throw new RangeError('the array is too long');
    charge(array.length / 2);
  };
  const listed = (self, values) => {
    if (!isArray(self)) throw new TypeError('only an array has this function');
    bounded(self);
    for (let at = 0; at < values.length; at += 1) if (isArray(values[at])) bounded(values[at]);
  };
  const listFunctions = ['concat', 'copyWithin', 'fill', 'join', 'reverse', 'shift', 'slice', 'splice', 'toLocaleString',
    'toReversed', 'toSpliced', 'unshift', 'with'];
  for (const key of listFunctions) wrap(Array.prototype, key, listed);
  // Without a function of the script, the engine would compare without asking for the time.
  const compare = (one, other) => {
    const [left, right] = [`${one}`, `${other}`];
    return left < right ? -1 : left > right ? 1 : 0;
  };
  for (const key of ['sort', 'toSorted']) {
    wrap(Array.prototype, key, (self, values) => {
      listed(self, []);
      if (values[0] === undefined) values[0] = compare;
    });
  }
  const flatten = (array, depth, into) => {
    bounded(array);
    for (let at = 0; at < array.length; at += 1) {
      const value = array[at];
      if (isArray(value) && depth > 0) flatten(value, depth - 1, into);
      else if (at in array) into[into.length] = value;
    }
    return into;
  };
  define(Array.prototype, 'flat', { flat(depth = 1) {
    if (!isArray(this)) throw new TypeError('only an array has this function');
    return flatten(this, +depth, []);
  } }.flat);
  delete Array.fromAsync;
  wrap(JSON, 'parse', (self, values) => {
    values[0] = `${values[0]}`;
    charge(values[0].length * 4);
  });
  wrap(JSON, 'stringify', () => charge(COST_MAX / 16));

  // Functions whose time grows with the square of a text of the network, or whose loops never ask for the time.
  delete String.prototype.normalize;
  delete String.prototype.localeCompare;
  const iterators = getPrototypeOf(getPrototypeOf([][Symbol.iterator]()));
  for (const key of ownKeys(iterators)) if (key !== Symbol.iterator) delete iterators[key];
  const forbid = (prototype) => define(prototype, 'constructor', undefined);
  for (const each of [function () {}, function* () {}, async function () {}, async function* () {}]) {
    forbid(getPrototypeOf(each));
  }
  for (const key of ['BigInt', 'Function', 'Iterator', 'escape', 'eval', 'queueMicrotask', 'unescape']) {
    delete globalThis[key];
  }

  // Their setters would keep a value in the engine.
  for (const key of ['captureStackTrace', 'prepareStackTrace', 'stackTraceLimit']) delete Error[key];

  // The time is that of the exchange, and random numbers are the worker's.
  const RealDate = Date;
  const GivenDate = function Date(...values) {
    if (new.target === undefined) return `${new RealDate(host.now())}`;
    return construct(RealDate, values.length === 0 ? [host.now()] : values, new.target);
  };
  GivenDate.prototype = RealDate.prototype;
  define(RealDate.prototype, 'constructor', GivenDate);
  define(GivenDate, 'now', () => host.now());
  define(GivenDate, 'parse', RealDate.parse);
  define(GivenDate, 'UTC', RealDate.UTC);
  define(globalThis, 'Date', GivenDate);
  define(Math, 'random', () => host.random());

  // `this.name = 'Mine'` in a class of errors works although the prototypes are frozen.
  for (const key of ownKeys(globalThis)) {
    const prototype = typeof globalThis[key] === 'function' ? globalThis[key].prototype : undefined;
    if (!(prototype instanceof Error) && prototype !== Error.prototype) continue;
    for (const name of ['name', 'message']) {
      const initial = prototype[name];
      defineProperty(prototype, name, {
        configurable: true,
        enumerable: false,
        get: () => initial,
        set(value) {
          defineProperty(this, name, { value, writable: true, enumerable: name === 'name', configurable: true });
        },
      });
    }
  }

  const headers = (side) => ({
    get: (name) => host.field(side, text(name, 'the name')),
    getAll: (name) => host.fields(side, text(name, 'the name')),
    has: (name) => host.field(side, text(name, 'the name')) !== null,
    names: () => host.names(side),
    set: (name, value) => host.setField(side, text(name, 'the name'), text(value, 'the value')),
    append: (name, value) => host.addField(side, text(name, 'the name'), text(value, 'the value')),
    delete: (name) => host.removeField(side, text(name, 'the name')),
  });
  const query = {
    get: (name) => {
      const values = host.parameters(text(name, 'the name'));
      return values.length === 0 ? null : values[0];
    },
    getAll: (name) => host.parameters(text(name, 'the name')),
    has: (name) => host.parameters(text(name, 'the name')).length > 0,
    names: () => host.parameterNames(),
    set: (name, value) => host.setParameter(text(name, 'the name'), text(value, 'the value')),
    append: (name, value) => host.addParameter(text(name, 'the name'), text(value, 'the value')),
    delete: (name) => host.removeParameter(text(name, 'the name')),
    toString: () => host.query(),
  };
  const json = (side) => {
    const body = host.body(side);
    return body === null ? null : JSON.parse(body);
  };
  const request = {
    get method() { return host.method(); },
    get scheme() { return host.scheme(); },
    get host() { return host.host(); },
    get path() { return host.path(); },
    set path(value) { host.setPath(text(value, 'the path')); },
    query,
    headers: headers(0),
    get body() { return host.body(0); },
    set body(value) { host.setBody(0, text(value, 'the body')); },
    json: () => json(0),
    get params() {
      const list = host.params();
      const params = create(null);
      for (let at = 0; at < list.length; at += 2) params[list[at]] = list[at + 1];
      return freeze(params);
    },
    get consumer() { return host.consumer(); },
    get provider() { return host.provider(); },
  };
  const response = {
    get status() { return host.status(); },
    headers: headers(1),
    get body() { return host.body(1); },
    set body(value) { host.setBody(1, text(value, 'the body')); },
    json: () => json(1),
  };

  // The value that a function returns to end the exchange. What it says is with the host.
  const decision = freeze(create(null));
  const options = (name, given, known) => {
    if (typeof given !== 'object' || given === null) throw new TypeError(`${name}() takes an object`);
    for (const key of keys(given)) {
      if (!known.includes(key)) throw new TypeError(`${name}() has no option \`${key}\``);
    }
    return given;
  };
  const respond = (given = {}) => {
    const { status = 200, headers: fields = {}, body = '' } =
      options('respond', given, ['status', 'headers', 'body']);
    host.respond(+status, text(body, 'the body'));
    for (const name of keys(fields)) {
      for (const value of isArray(fields[name]) ? fields[name] : [fields[name]]) {
        host.respondField(name, text(value, 'the value'));
      }
    }
    return decision;
  };
  const refuse = (given = {}) => {
    const { status = 403, detail = 'A script refused the request.' } = options('refuse', given, ['status', 'detail']);
    host.refuse(+status, text(detail, 'the detail'));
    return decision;
  };
  const crypto = {
    hash: (algorithm, input, encoding = 'hex') =>
      host.hash(`${algorithm}`, text(input, 'the text'), `${encoding}`),
    hmac: (algorithm, key, input, encoding = 'hex') =>
      host.hmac(`${algorithm}`, text(key, 'the key'), text(input, 'the text'), `${encoding}`),
    randomUUID: () => host.uuid(),
  };
  const given = {
    respond,
    refuse,
    crypto,
    btoa: (bytes) => host.btoa(text(bytes, 'the text')),
    atob: (encoded) => host.atob(text(encoded, 'the text')),
    secrets: Object.assign(create(null), secrets),
  };
  for (const key of keys(given)) define(globalThis, key, given[key]);

  const seen = new Set();
  const freezeAll = (value) => {
    if (seen.has(value)) return;
    seen.add(value);
    freeze(value);
    visit(getPrototypeOf(value));
    const all = ownKeys(value);
    // Nearly every function has only its length and its name, and this takes most of the time of a start.
    if (all.length === 2 && typeof value === 'function') return;
    for (let at = 0; at < all.length; at += 1) {
      const property = getOwnPropertyDescriptor(value, all[at]);
      visit(property.value);
      if (property.get !== undefined) visit(property.get);
      if (property.set !== undefined) visit(property.set);
    }
  };
  const visit = (value) => {
    if (typeof value === 'function' || (typeof value === 'object' && value !== null)) freezeAll(value);
  };
  const unnamed = [
    [][Symbol.iterator](), new Map()[Symbol.iterator](), new Set()[Symbol.iterator](), ''[Symbol.iterator](),
    ''.matchAll(/a/g), function () {}, function* () {}, async function () {}, async function* () {}, () => {},
    (function* () {})(), (async function* () {})(), (function () { return arguments; })(),
  ];
  for (const each of unnamed) visit(each);
  for (const each of [globalThis, request, response, decision]) visit(each);

  // The script runs as a whole for each call, so none of its variables outlives one.
  const [probe, ...sides] = source;
  return (side) => {
    if (side === 2) return probe();
    const act = sides[side]();
    const result = side === 0 ? act(request) : act(request, response);
    if (result === undefined || result === null) return 0;
    if (result === decision) return 1;
    return result instanceof Promise ? 2 : 3;
  };
})
