// Functions that call each other in known ways, a number of rounds. `//--> NAME, ...` lists the functions that a line
// may call, directly or through builtins.
"use strict";

const rounds = Number(process.env.UU_TEST_ROUNDS || "10");
let sink = 0;

function arithmetic(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) {
    sum = (sum * 31 + i) % 1000003;
  }
  return sum;
}

function strings(n) {
  let text = "";
  for (let i = 0; i < n; i++) {
    text += String.fromCharCode(97 + i % 26);
  }
  return text.split("e").join("-").replace(/[a-c]+/g, "x").length;
}

function recursive(n) {
  if (n === 0) {
    return arithmetic(10); //--> arithmetic
  }
  return 1 + recursive(n - 1); //--> recursive
}

function even(n) {
  return n === 0 ? arithmetic(5) : odd(n - 1); //--> arithmetic, odd
}

function odd(n) {
  return n === 0 ? 0 : even(n - 1); //--> even
}

function small(n) {
  return n + 1;
}

function inlines(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) {
    sum += small(i); //--> small
  }
  return sum;
}

function allocates(n) {
  const kept = [];
  for (let i = 0; i < n; i++) {
    kept.push({ value: i, text: "value " + i, list: [i, i + 1] });
  }
  return kept.length;
}

class Shape {
  constructor(side) {
    this.side = arithmetic(side); //--> arithmetic
  }

  get area() {
    return this.side * arithmetic(3); //--> arithmetic
  }

  scaled(by) {
    return new Square(by).area; //--> Square, area
  }
}

class Square extends Shape {
  constructor(side) {
    super(side); //--> Shape
  }

  get area() {
    return super.area + small(1); //--> area, small
  }
}

function callback(x) {
  return arithmetic(x); //--> arithmetic
}

function byBuiltins(n) {
  let sum = [3, 1, 2].map(callback).length; //--> callback
  sum += [5, 4].sort(compare)[0]; //--> compare
  sum += Reflect.apply(callback, null, [n]); //--> callback
  sum += callback.call(null, n) + callback.apply(null, [n]); //--> callback
  sum += JSON.parse("[1,2,3]", reviver).length; //--> reviver
  sum += "abc".replace(/b/, replacer).length; //--> replacer
  sum += callback.bind(null, n)(); //--> callback
  return sum;
}

function compare(a, b) {
  return arithmetic(4) - arithmetic(4) + a - b; //--> arithmetic
}

function reviver(key, value) {
  return small(1) && value; //--> small
}

function replacer(text) {
  return text + strings(2); //--> strings
}

function throws(n) {
  if (n === 0) {
    throw new Error("the end");
  }
  return throws(n - 1); //--> throws
}

function catches(n) {
  try {
    return throws(n); //--> throws
  } catch (error) {
    return error.message.length + small(n); //--> small
  }
}

function* generates(n) {
  for (let i = 0; i < n; i++) {
    yield arithmetic(i); //--> arithmetic
  }
}

function consumes(n) {
  let sum = 0;
  for (const value of generates(n)) { //--> generates
    sum += value;
  }
  return sum;
}

function closures(n) {
  const add = function added(x) {
    return x + arithmetic(n); //--> arithmetic
  };
  return add(1) + add(2); //--> added
}

function evaluates(n) {
  const proxy = new Proxy({}, { get: trap });
  return proxy.some + n; //--> trap
}

function trap(target, name) {
  return arithmetic(name.length); //--> arithmetic
}

function everything(n) {
  sink += arithmetic(n) + strings(n); //--> arithmetic, strings
  sink += recursive(n % 40) + even(n % 30); //--> recursive, even
  sink += inlines(n) + allocates(n); //--> inlines, allocates
  sink += new Shape(3).area + new Shape(2).scaled(2); //--> Shape, area, scaled
  sink += byBuiltins(4) + catches(5); //--> byBuiltins, catches
  sink += consumes(5) + closures(4) + evaluates(3); //--> consumes, closures, evaluates
}

function main() {
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < 50; i++) {
      everything(i); //--> everything
    }
  }
}

if (process.env.UU_TEST_READY) {
  require("fs").writeSync(1, "ready\n");
}
main(); //--> main
