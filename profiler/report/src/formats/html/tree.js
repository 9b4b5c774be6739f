// The tree that is drawn: the recording's, without the frames that are hidden, merged by function or by line.

class Tree {
  constructor(data, options) {
    this.data = data;
    const keys = Tree.keys(data, options);
    const count = data.parent.length;
    // Where each of the recording's nodes went; a hidden one is its caller.
    this.of = new Uint32Array(count);
    this.parent = new Uint32Array(count);
    this.key = new Int32Array(count).fill(-1);
    this.child = new Uint32Array(count);
    this.next = new Uint32Array(count);
    let size = 1;
    // Children are found by their callers and keys. Nodes come callers first, so the first places to look at lie near
    // the caller's: most are in the processor's caches. Where these are taken, as of a caller of very many, the others
    // follow from anywhere.
    let slots = 2048;
    while (slots < 2 * count) slots *= 2;
    const table = new Uint32Array(slots), { parent: parents, key: known, of } = this;
    for (let node = 1; node < count; node++) {
      const parent = of[data.parent[node]], key = keys[data.frame[node]];
      if (key < 0) {
        of[node] = parent;
        continue;
      }
      const hash = Math.imul(key, 0x9e3779b1);
      let slot = (2 * parent + (hash >>> 22)) & (slots - 1), tries = 0, found;
      while ((found = table[slot]) && (parents[found] !== parent || known[found] !== key)) {
        slot = ++tries === 8 ? (hash ^ Math.imul(parent, 0x85ebca6b)) >>> 8 : slot + 1;
        slot &= slots - 1;
      }
      if (!found) {
        found = table[slot] = size++;
        parents[found] = parent;
        known[found] = key;
      }
      of[node] = found;
    }
    this.size = size;
    this.byLine = options.byLine;
    // Where the time of each of the recording's nodes is counted: charged to the line that called an interpreter's
    // internals, or where it was spent.
    this.leaf = options.internals ? null : data.charged;
    this.order();
  }

  // Siblings stand in the order of their weights in the whole recording, as in the other picture: boxes keep their
  // places when a part of it is chosen.
  order() {
    const { data, size } = this, total = new Float64Array(size);
    for (let i = 0; i < data.node.length; i++) {
      total[this.of[this.leaf ? this.leaf[data.node[i]] : data.node[i]]] += data.weight[i];
    }
    for (let node = size - 1; node > 0; node--) total[this.parent[node]] += total[node];
    const rank = (node) => data.rank[this.functionOf(node)];
    const later = (a, b) => total[a] - total[b] || rank(b) - rank(a) || this.key[b] - this.key[a];
    const nodes = Uint32Array.from({ length: Math.max(0, size - 1) }, (_, index) => index + 1).sort(later);
    this.child.fill(0);
    for (const node of nodes) {
      this.next[node] = this.child[this.parent[node]];
      this.child[this.parent[node]] = node;
    }
  }

  // For each frame of the recording what it is merged by, or -1: it is hidden.
  static keys(data, options) {
    const keys = new Int32Array(2 * data.function.length);
    for (let place = 0; place < data.function.length; place++) {
      const own = data.function[place], key = options.byLine ? place : own;
      const shown = !options.hidden.has(data.category[own]);
      keys[2 * place] = shown ? key : -1;
      keys[2 * place + 1] = shown && options.glue ? key : -1;
    }
    return keys;
  }

  // Weighs the tree by the samples of these threads and this time.
  weigh(wanted, from, to) {
    const { data, size } = this;
    this.self = new Float64Array(size);
    this.total = new Float64Array(size);
    this.x = new Float64Array(size);
    for (let i = 0; i < data.node.length; i++) {
      if (!wanted[data.thread[i]]) continue;
      const [began, ended] = spanOf(data, i);
      const part = (Math.min(ended, to) - Math.max(began, from)) / (ended - began);
      const node = this.leaf ? this.leaf[data.node[i]] : data.node[i];
      if (part > 0) this.self[this.of[node]] += data.weight[i] * part;
    }
    // A node's number is greater than its caller's.
    for (let node = size - 1; node >= 0; node--) {
      this.total[node] += this.self[node];
      if (node > 0) this.total[this.parent[node]] += this.total[node];
    }
    for (let node = 0; node < size; node++) {
      for (let child = this.child[node], x = this.x[node]; child; child = this.next[child]) {
        this.x[child] = x;
        x += this.total[child];
      }
    }
  }

  functionOf(node) {
    return this.byLine ? this.data.function[this.key[node]] : this.key[node];
  }

  depth(node) {
    let depth = 0;
    for (; node; node = this.parent[node]) depth++;
    return depth;
  }

  name(node) {
    if (!node) return "all";
    const { data } = this, own = this.functionOf(node);
    const line = this.byLine && data.line[this.key[node]];
    return data.texts[data.name[own]] + (line ? ":" + line : "");
  }

  file(node) {
    return node ? this.data.texts[this.data.file[this.functionOf(node)]] : "";
  }

  // Which functions match, and the weight in and below them.
  search(matches) {
    const inside = new Uint8Array(this.size);
    let weight = 0;
    for (let node = 1; node < this.size; node++) {
      if (inside[this.parent[node]]) inside[node] = 1;
      else if (matches[this.functionOf(node)]) {
        inside[node] = 1;
        weight += this.total[node];
      }
    }
    return weight;
  }
}
