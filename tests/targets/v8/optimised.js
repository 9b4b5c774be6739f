// Stacks in optimised code, with functions that are inlined there: each is written down as the runtime has it, a line of
// JSON, and then sampled. For --allow-natives-syntax; UU_TEST_TIER is maglev or turbofan.
"use strict";

const fs = require("fs");
Error.stackTraceLimit = 200;
const native = { exports: {} };
process.dlopen(native, process.env.UU_TEST_CAP);
let armed = false;

// [function, file, line] of each frame that runs JavaScript, innermost first, from the caller on.
function places() {
  Error.prepareStackTrace = (_, sites) => sites
    .filter((site) => site.getLineNumber() !== null)
    .map((site) => [site.getFunctionName() ?? "(anonymous)", site.getFileName() ?? "<anonymous>", site.getLineNumber()]);
  const found = new Error().stack.slice(2);
  Error.prepareStackTrace = undefined;
  return found;
}

function cap() {
  fs.appendFileSync(process.env.UU_TEST_ORACLE, JSON.stringify(places()) + "\n");
  native.exports();
}

function point(n) {
  if (armed) {
    cap();
  }
  return n;
}

function deepest(n) {
  return 1 +
    point(n);
}

function inner(n) {
  let sum = n * 2;
  for (let i = 0; i < 2; i++) {
    sum +=
      deepest(i);
  }
  return sum;
}

// A compiler may put the first round of a loop before it.
function loops(n) {
  let sum = 0;
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < 3; i++) {
      sum += point(i);
      sum -=
        inner(n);
    }
    sum +=
      deepest(sum);
  }
  return sum;
}

class Kind {
  constructor(n) {
    this.n =
      point(n);
  }

  get field() {
    return this.n +
      deepest(1);
  }

  method(n) {
    return this.field +
      inner(n);
  }
}

function objects(n) {
  const kind = new Kind(n);
  return kind.method(n) +
    kind.field;
}

function callbacks(n) {
  let sum = 0;
  [1, 2].forEach((item) => {
    sum +=
      deepest(item);
  });
  return sum + [n].map(deepest)[0];
}

function catches(n) {
  try {
    throws(n);
  } catch (error) {
    return deepest(error.length);
  }
  return 0;
}

function throws(n) {
  if (point(n) >= 0) {
    throw "one";
  }
}

// The code of a function on the stack is given up.
function given(n) {
  let sum = deepest(n);
  sum +=
    gives(n);
  return sum + deepest(n);
}

function gives(n) {
  if (armed) {
    %DeoptimizeFunction(given);
    cap();
  }
  return n;
}

const parts = [deepest, inner, Kind, Kind.prototype.method, throws];
for (const never of [cap, point, gives]) {
  %NeverOptimizeFunction(never);
}
for (const part of parts) {
  %PrepareFunctionForOptimization(part);
}
%PrepareFunctionForOptimization(Object.getOwnPropertyDescriptor(Kind.prototype, "field").get);
// OptimizationStatus::kOptimized of V8's runtime/runtime.h: a bit before it is gone in Node 26.
const OPTIMISED = 1 << (parseInt(process.versions.node) < 26 ? 4 : 3);
for (const top of [loops, objects, callbacks, catches, given]) {
  // What was compiled first may be given up at once, for what it learns.
  for (let round = 0; round === 0 || round < 5 && !(%GetOptimizationStatus(top) & OPTIMISED); round++) {
    %PrepareFunctionForOptimization(top);
    top(1);
    top(2);
    if (process.env.UU_TEST_TIER === "maglev") {
      %OptimizeMaglevOnNextCall(top);
    } else {
      %OptimizeFunctionOnNextCall(top);
    }
    top(3);
  }
  if (!(%GetOptimizationStatus(top) & OPTIMISED)) {
    throw new Error(top.name + " is not optimised");
  }
  armed = true;
  top(4);
  armed = false;
}
