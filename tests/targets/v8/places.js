// Stacks at known points: each is written down as the runtime has it, a line of JSON, and then sampled.
"use strict";

const fs = require("fs");
Error.stackTraceLimit = 200;
const native = { exports: {} };
process.dlopen(native, process.env.UU_TEST_CAP);

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

class Kind {
  constructor(n) {
    this.n = n;
    cap();
  }

  method() {
    [1].forEach(() => {
      cap();
    });
  }

  get field() {
    cap();
    return 1;
  }

  static ofClass() { cap(); }
}

class Derived extends Kind {
  method() {
    super.method();
  }
}

function recursive(n) {
  if (n === 0) {
    cap();
  } else {
    recursive(n - 1);
  }
}

function outer() {
  function inner() {
    return (() => cap())();
  }
  inner();
}

function* generator() {
  yield 1;
  cap();
}

function ünïcödé() {
  cap();
}

const kind = new Derived(1);
kind.method();
kind.field;
Kind.ofClass();
recursive(20);
outer();
for (const _ of generator()) {
  ünïcödé();
}
[2, 1].sort((a, b) => { cap(); return a - b; });
"abc".replace(/b/, () => {
  cap();
  return "";
});
Reflect.apply(recursive, null, [3]);
recursive.bind(null, 2)();
new Function("cap", "\ncap();")(cap);
eval("cap();\ncap();");
try {
  throw new Error("x");
} catch {
  cap();
} finally {
  cap();
}
(function () {
  cap();
})();
setTimeout(function later() {
  cap();
}, 0);
Promise.resolve().then(function reaction() {
  cap();
});
(async function asynchronous() {
  await null;
  cap();
})();
