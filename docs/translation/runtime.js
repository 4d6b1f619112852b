// What Python's operations and types mean, for functions that docs/translation writes in JavaScript.
// Whatever Python refuses, or what a double cannot hold, throws. Nothing of the spec is in here.
const py = (() => {
  "use strict";
  class PythonError extends Error {}
  class ValueError extends PythonError {}
  const refuse = (what) => {
    throw new PythonError(what);
  };

  const CACHE = Symbol("what cached properties have computed");
  class Instance {} // of a class without fields
  class Record extends Instance {
    // A frozen dataclass: `fields` in order, `compared` those that equality depends on.
    constructor(values) {
      super();
      Object.defineProperty(this, CACHE, { value: new Map() });
      this.constructor.fields.forEach((name, at) => {
        if (values[at] === undefined) refuse(`${this.constructor.name} lacks ${name}`);
        this[name] = values[at];
      });
      if (this.__post_init__) this.__post_init__();
    }
  }
  function cached(x, name, compute) {
    if (!x[CACHE].has(name)) x[CACHE].set(name, compute());
    return x[CACHE].get(name);
  }
  class Range {
    constructor(start, stop, step = 1) {
      if (step === 0) refuse("a range needs a step");
      Object.assign(this, { start, stop, step });
    }
    get length() {
      return Math.max(0, Math.ceil((this.stop - this.start) / this.step));
    }
    at(index) {
      return this.start + index * this.step;
    }
    has(value) {
      const at = (value - this.start) / this.step;
      return Number.isInteger(at) && 0 <= at && at < this.length;
    }
    *[Symbol.iterator]() {
      for (let at = 0; at < this.length; at++) yield this.at(at);
    }
  }
  // Members by what they are equal by.
  class PySet {
    constructor(members = []) {
      this.members = new Map();
      for (const each of iter(members)) this.members.set(key(each), each);
    }
    get length() {
      return this.members.size;
    }
    has(value) {
      return this.members.has(key(value));
    }
    [Symbol.iterator]() {
      return this.members.values();
    }
  }
  class PyDict {
    constructor(pairs = []) {
      this.pairs = new Map();
      for (const [name, value] of pairs) this.set(name, value);
    }
    get length() {
      return this.pairs.size;
    }
    has(name) {
      return this.pairs.has(key(name));
    }
    set(name, value) {
      const same = key(name);
      this.pairs.set(same, [this.pairs.has(same) ? this.pairs.get(same)[0] : name, value]);
    }
    get(name, otherwise = null) {
      return this.has(name) ? this.pairs.get(key(name))[1] : otherwise;
    }
    *[Symbol.iterator]() {
      for (const [name] of this.pairs.values()) yield name;
    }
  }

  const isNumber = (x) => typeof x === "number" || typeof x === "boolean";
  const isString = (x) => typeof x === "string";
  const safe = (x) =>
    Number.isSafeInteger(x) ? x + 0 : refuse(`${x} is no integer that a double can hold`);
  const numbers = (a, b, sign) => {
    if (!isNumber(a) || !isNumber(b)) refuse(`no ${sign} of ${typeof a} and ${typeof b}`);
  };

  function key(x) {
    if (isNumber(x)) return `${Number(x)}`;
    if (isString(x)) return JSON.stringify(x);
    if (x === null) return "None";
    if (Array.isArray(x)) return `(${x.map(key)})`;
    if (x instanceof Record) return `${x.constructor.name}${key(compared(x))}`;
    if (x instanceof PySet) return `{${[...x.members.keys()].sort()}}`;
    return refuse(`no key of ${typeof x}`);
  }
  const compared = (x) => x.constructor.compared.map((name) => x[name]);
  function eq(a, b) {
    if (isNumber(a) && isNumber(b)) return Number(a) === Number(b);
    if (a === null || b === null || isString(a) || isString(b)) return a === b;
    if (a instanceof Range && b instanceof Range) return eq([...a], [...b]);
    return key(a) === key(b);
  }
  function compare(a, b) {
    if (isNumber(a) && isNumber(b)) return Number(a) - Number(b);
    if (isString(a) && isString(b)) return a < b ? -1 : a > b ? 1 : 0;
    if (!Array.isArray(a) || !Array.isArray(b)) refuse(`no order of ${typeof a} and ${typeof b}`);
    for (let at = 0; at < Math.min(a.length, b.length); at++) {
      if (!eq(a[at], b[at])) return compare(a[at], b[at]);
    }
    return a.length - b.length;
  }
  const subset = (a, b) => [...a].every((each) => b.has(each));
  const le = (a, b) => (a instanceof PySet && b instanceof PySet ? subset(a, b) : compare(a, b) <= 0);
  function lt(a, b) {
    if (a instanceof PySet && b instanceof PySet) return subset(a, b) && a.length < b.length;
    return compare(a, b) < 0;
  }
  function contains(things, x) {
    if (things instanceof Range) return isNumber(x) && things.has(Number(x));
    if (things instanceof PySet || things instanceof PyDict) return things.has(x);
    if (isString(things) && isString(x)) return things.includes(x);
    for (const each of iter(things)) if (eq(each, x)) return true;
    return false;
  }
  const sized = (x) => isString(x) || Array.isArray(x) || (typeof x === "object" && "length" in x);
  function truth(x) {
    if (typeof x === "boolean") return x;
    if (x === null) return false;
    if (x === undefined) refuse("nothing was given");
    if (isNumber(x)) return x !== 0;
    return sized(x) ? x.length > 0 : true;
  }
  function iter(x) {
    if (x === null || typeof x[Symbol.iterator] !== "function") refuse("it cannot be iterated");
    return x;
  }
  const list = (x = []) => [...iter(x)];

  function add(a, b) {
    if (isString(a) && isString(b)) return a + b;
    if (Array.isArray(a) && Array.isArray(b)) return [...a, ...b];
    numbers(a, b, "+");
    return safe(Number(a) + Number(b));
  }
  function sub(a, b) {
    if (a instanceof PySet && b instanceof PySet) return new PySet([...a].filter((x) => !b.has(x)));
    numbers(a, b, "-");
    return safe(Number(a) - Number(b));
  }
  function mul(a, b) {
    if (isString(a) && isNumber(b)) return a.repeat(Math.max(0, Number(b)));
    if (Array.isArray(a) && isNumber(b)) return Array(Math.max(0, Number(b))).fill(a).flat();
    numbers(a, b, "*");
    return safe(Number(a) * Number(b));
  }
  function floordiv(a, b) {
    numbers(a, b, "//");
    if (Number(b) === 0) refuse("division by zero");
    return safe(Math.floor(a / b));
  }
  const mod = (a, b) => sub(a, mul(floordiv(a, b), b));
  const neg = (a) => sub(0, a);
  function and(a, b) {
    if (typeof a === "boolean" && typeof b === "boolean") return a && b;
    if (a instanceof PySet && b instanceof PySet) return new PySet([...a].filter((x) => b.has(x)));
    return refuse("& is of truth values and sets only");
  }
  function or(a, b) {
    if (typeof a === "boolean" && typeof b === "boolean") return a || b;
    if (a instanceof PySet && b instanceof PySet) return new PySet([...a, ...b]);
    return refuse("| is of truth values and sets only");
  }

  function str(x) {
    if (isString(x)) return x;
    if (typeof x === "boolean") return x ? "True" : "False";
    if (x === null) return "None";
    if (typeof x === "number") return String(x);
    if (x instanceof Error) return x.message;
    return refuse(`no text of ${typeof x}`);
  }
  function repr(x) {
    if (!isString(x)) return str(x);
    if (/[\\\x00-\x1f\x7f-\uffff]/.test(x)) refuse("only plain text can be quoted");
    return x.includes("'") && !x.includes('"') ? `"${x}"` : `'${x.replaceAll("'", "\\'")}'`;
  }
  function int(x) {
    if (isNumber(x)) return Number(x);
    if (!/^[0-9]+$/.test(x)) throw new ValueError(`invalid literal for int(): ${repr(x)}`);
    return safe(Number(x));
  }
  function member(values, value, name) {
    if (!values.includes(value)) throw new ValueError(`${repr(value)} is not a valid ${name}`);
    return value;
  }
  function item(things, index) {
    if (things instanceof PyDict) {
      return things.has(index) ? things.get(index) : refuse(`no key ${key(index)}`);
    }
    const at = place(things, index);
    return things instanceof Range ? things.at(at) : things[at];
  }
  function place(things, index) {
    const at = index < 0 ? things.length + index : index;
    return 0 <= at && at < things.length ? at : refuse(`no item ${index}`);
  }
  function slice(things, start, stop) {
    if (things instanceof Range) {
      const whole = new Range(0, things.length);
      const { start: from, stop: to } = bounds(whole.length, start, stop);
      return new Range(things.at(from), things.at(to), things.step);
    }
    const { start: from, stop: to } = bounds(things.length, start, stop);
    return things.slice(from, to);
  }
  function bounds(length, start, stop) {
    const inside = (x) => Math.min(Math.max(x < 0 ? length + x : x, 0), length);
    const from = start === null ? 0 : inside(start);
    return { start: from, stop: Math.max(from, stop === null ? length : inside(stop)) };
  }
  function put(things, index, value) {
    if (things instanceof PyDict) return void things.set(index, value);
    if (!Array.isArray(things)) refuse("only items of a list or a dict can be set");
    things[place(things, index)] = value;
  }
  function splice(things, start, stop, values) {
    const { start: from, stop: to } = bounds(things.length, start, stop);
    things.splice(from, to - from, ...list(values));
  }
  // `shape` has 1 for a value, null for the rest of them, and a shape for values within.
  function unpack(things, shape) {
    const all = list(things), rest = shape.includes(null);
    if (rest ? all.length < shape.length - 1 : all.length !== shape.length) {
      refuse(`${shape.length} values are unpacked, not ${all.length}`);
    }
    shape.forEach((inner, at) => {
      if (Array.isArray(inner)) all[at] = unpack(all[at], inner);
    });
    return all;
  }

  const SPACES = /^[ \t\n\r\f\v]+|[ \t\n\r\f\v]+$/g;
  const methods = {
    string: {
      join: (by, parts) => list(parts).map((x) => (isString(x) ? x : refuse("no text"))).join(by),
      replace: (x, old, by) => x.replaceAll(old, () => by),
      strip: (x) => x.replace(SPACES, ""),
      split: (x, by) => x.split(by),
      lower: (x) => x.toLowerCase(),
      startswith: (x, start) => x.startsWith(start),
      partition: (x, by) => {
        const at = x.indexOf(by);
        return at < 0 ? [x, "", ""] : [x.slice(0, at), by, x.slice(at + by.length)];
      },
    },
    list: {
      append: (x, value) => (x.push(value), null),
      extend: (x, values) => (x.push(...list(values)), null),
    },
    set: {
      add: (x, value) => (x.members.set(key(value), value), null),
      update: (x, values) => (list(values).forEach((v) => x.members.set(key(v), v)), null),
    },
    dict: {
      get: (x, name, otherwise = null) => x.get(name, otherwise),
      items: (x) => [...x.pairs.values()],
      keys: (x) => list(x),
      values: (x) => [...x.pairs.values()].map((pair) => pair[1]),
      setdefault: (x, name, value) => (x.has(name) || x.set(name, value), x.get(name)),
    },
  };
  function call(x, name, ...given) {
    if (x instanceof Instance) return x[name](...given);
    const type = isString(x) ? "string" : Array.isArray(x) ? "list" : x instanceof PySet ? "set"
      : x instanceof PyDict ? "dict" : refuse(`no method ${name}`);
    if (!(name in methods[type])) refuse(`no method ${name} of a ${type}`);
    return methods[type][name](x, ...given);
  }
  function get(x, name) {
    if (!(x instanceof Instance || x instanceof Range)) refuse(`no ${name} of ${typeof x}`);
    const value = x[name];
    if (value === undefined) refuse(`${x.constructor.name} has no ${name}`);
    return typeof value === "function" ? value.bind(x) : value;
  }
  function replace(x, changes) {
    const { fields } = x.constructor;
    Object.keys(changes).forEach((name) => fields.includes(name) || refuse(`no field ${name}`));
    return new x.constructor(...fields.map((name) => (name in changes ? changes[name] : x[name])));
  }

  function best(values, otherwise, better) {
    const all = list(values);
    if (!all.length) return otherwise === undefined ? refuse("nothing to choose from") : otherwise;
    return all.reduce((found, each) => (better(each, found) ? each : found));
  }
  function* map(f, ...things) {
    for (const each of zip(...things)) yield f(...each);
  }
  function* zip(...things) {
    const all = things.map((each) => iter(each)[Symbol.iterator]());
    for (;;) {
      const next = all.map((each) => each.next());
      if (next.some((each) => each.done)) return;
      yield next.map((each) => each.value);
    }
  }
  function* zipStrict(...things) {
    const all = things.map(list);
    if (new Set(all.map((each) => each.length)).size > 1) refuse("they differ in length");
    yield* zip(...all);
  }
  function* filter(f, things) {
    for (const each of iter(things)) if (truth(f === null ? each : f(each))) yield each;
  }
  function* enumerate(things) {
    let at = 0;
    for (const each of iter(things)) yield [at++, each];
  }
  const gcd = (...all) => all.reduce((a, b) => {
    while (b) [a, b] = [b, a % b];
    return a;
  }, 0);
  const builtins = {
    all: (things) => { for (const x of iter(things)) if (!truth(x)) return false; return true; },
    any: (things) => { for (const x of iter(things)) if (truth(x)) return true; return false; },
    bool: truth,
    dict: (pairs = []) => new PyDict(iter(pairs)),
    fromkeys: (names) => new PyDict(list(names).map((name) => [name, null])),
    frozenset: (things = []) => new PySet(things),
    intersection: (first, ...rest) => rest.reduce(and, first),
    len: (x) => (sized(x) ? x.length : refuse("it has no length")),
    max: (values, otherwise) => best(values, otherwise, (a, b) => compare(a, b) > 0),
    min: (values, otherwise) => best(values, otherwise, (a, b) => compare(a, b) < 0),
    next: (things, otherwise) => { for (const x of iter(things)) return x; return otherwise; },
    partial: (f, ...first) => (...rest) => f(...first, ...rest),
    range: (a, b, step) => (b === undefined ? new Range(0, a) : new Range(a, b, step)),
    sorted: (things, by = (x) => x, reverse = false) =>
      list(things).sort((a, b) => (reverse ? compare(by(b), by(a)) : compare(by(a), by(b)))),
    sum: (things) => list(things).reduce(add, 0),
    lcm: (...all) => all.reduce((a, b) => mul(a / gcd(a, b), b), 1),
  };
  const otherwise = (a, b) => (truth(a) ? a : b());
  const both = (a, b) => (truth(a) ? b() : a);

  // Data in and out.
  const read = (x) =>
    Array.isArray(x) ? x.map(read)
      : x !== null && typeof x === "object"
        ? new PyDict(Object.entries(x).map(([name, value]) => [name, read(value)])) : x;
  const write = (x) =>
    x instanceof PyDict ? Object.fromEntries(list(methods.dict.items(x)).map(([name, value]) => [name, write(value)]))
      : isString(x) || isNumber(x) || x === null ? x : list(x).map(write);

  return {
    ...builtins, PythonError, ValueError, Instance, Record, cached, refuse, isNumber, isString,
    add, sub, mul, floordiv, mod, neg, and, or, eq, le, lt, contains, truth, iter, list,
    str, repr, int, member, item, slice, put, splice, unpack, call, get, replace,
    map, zip, zipStrict, filter, enumerate, gcd, otherwise, both, read, write,
    set: builtins.frozenset,
  };
})();
