// The flame graph on its canvas, the root at the top. The canvas is as high as the window and sticks to its top; boxes
// narrower than half a pixel are drawn as one with their neighbours.

const LEVEL = matchMedia("(pointer: coarse)").matches ? 24 : 19;
const NARROW = 0.6;
const FONT = "12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";

class Flames {
  constructor(canvas, colours) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.scroll = document.getElementById("scroll");
    this.tall = document.getElementById("tall");
    this.colours = colours;
    this.zoomed = 0;
    this.current = -1;
    this.matches = null;
    this.context.font = FONT;
    this.letter = this.context.measureText("0".repeat(100)).width / 100;
  }

  show(tree) {
    this.tree = tree;
    this.zoomed = 0;
    this.current = -1;
    [this.left, this.width] = [0, tree.total[0]];
    this.fit();
  }

  // Makes room for the deepest box that is wide enough.
  fit() {
    const { tree } = this;
    const scale = this.scroll.clientWidth / this.width;
    let deepest = 1;
    this.visit(this.left, this.width, scale, (node, depth) => { if (depth >= deepest) deepest = depth + 1; }, () => {});
    this.tall.style.height = Math.max(deepest * LEVEL + 8, this.scroll.clientHeight) + "px";
    this.deepest = deepest;
    if (tree.total[0] > 0) this.draw();
    else this.empty();
  }

  // Calls `box` for each box that can be seen, callers first, and `run` for each run of narrow ones: x, width, depth.
  visit(left, width, scale, box, run) {
    const { tree } = this, stack = [[0, 0]], right = left + width, least = NARROW / scale;
    while (stack.length) {
      const [node, depth] = stack.pop();
      if (box(node, depth) === false) continue;
      let from = -1, to = -1;
      for (let child = tree.child[node]; child; child = tree.next[child]) {
        const x = tree.x[child], total = tree.total[child];
        if (x > right) break;
        if (x + total < left || !total) continue;
        if (total >= least) {
          stack.push([child, depth + 1]);
          continue;
        }
        if (from >= 0 && x - to > least) {
          run(from, to - from, depth + 1);
          from = -1;
        }
        if (from < 0) from = x;
        to = x + total;
      }
      if (from >= 0) run(from, to - from, depth + 1);
    }
  }

  size() {
    const ratio = devicePixelRatio || 1;
    const width = this.scroll.clientWidth, height = this.scroll.clientHeight;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = height + "px";
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.font = FONT;
    this.context.textBaseline = "middle";
    return [width, height];
  }

  empty() {
    const [width, height] = this.size(), { context, colours } = this;
    context.fillStyle = colours.back;
    context.fillRect(0, 0, width, height);
    context.fillStyle = colours.faint;
    context.fillText("No samples here.", 14, 24);
  }

  draw() {
    const [width, height] = this.size();
    const { context, colours, tree, matches } = this;
    const scale = width / this.width, top = this.scroll.scrollTop;
    context.fillStyle = colours.back;
    context.fillRect(0, 0, width, height);
    const ancestors = new Set();
    for (let node = this.zoomed; node; node = tree.parent[node]) ancestors.add(tree.parent[node]);
    let fill = "";
    const colour = (wanted) => { if (fill !== wanted) context.fillStyle = fill = wanted; };
    const labels = [];
    let boxes = 0;
    this.visit(this.left, this.width, scale, (node, depth) => {
      const y = depth * LEVEL - top;
      if (y > height) return false;
      if (y < -LEVEL) return true;
      const x = Math.max(0, (tree.x[node] - this.left) * scale);
      const end = Math.min(width, (tree.x[node] + tree.total[node] - this.left) * scale);
      const own = node && tree.functionOf(node);
      const matched = node && matches && matches[own];
      if (!node) colour(colours.root);
      else if (matched) colour(colours.mark);
      else colour(matches || ancestors.has(node) ? colours.dimmed : colours.of(own));
      const wide = end - x;
      context.fillRect(x, y, Math.max(wide - (wide > 3 ? 1 : 0), NARROW), LEVEL - 1);
      boxes++;
      if (wide > 4 * this.letter) labels.push(node, x + 4, y + LEVEL / 2, wide - 7, matched);
      return true;
    }, (x, wide, depth) => {
      const y = depth * LEVEL - top;
      if (y > height || y < -LEVEL) return;
      colour(colours.narrow);
      context.fillRect((x - this.left) * scale, y, Math.max(wide * scale, NARROW), LEVEL - 1);
      boxes++;
    });
    for (let i = 0; i < labels.length; i += 5) {
      colour(labels[i + 4] ? colours.back : colours.ink);
      context.fillText(this.label(labels[i], labels[i + 3]), labels[i + 1], labels[i + 2]);
    }
    if (this.current >= 0) this.outline(this.current, scale, top, width);
    this.boxes = boxes;
  }

  label(node, room) {
    const letters = Math.floor(room / this.letter);
    let name = this.tree.name(node);
    // Every file has its <module>.
    if (/^<[a-z]+>/.test(name)) name += " " + this.tree.file(node).split("/").slice(-2).join("/");
    return name.length <= letters ? name : name.slice(0, Math.max(letters - 1, 1)) + "\u2026";
  }

  outline(node, scale, top, width) {
    const { context, tree } = this;
    const x = Math.max(0, (tree.x[node] - this.left) * scale);
    const end = Math.min(width, (tree.x[node] + tree.total[node] - this.left) * scale);
    context.strokeStyle = this.colours.ink;
    context.lineWidth = 1.5;
    context.strokeRect(x + 0.5, tree.depth(node) * LEVEL - top + 0.5, Math.max(end - x - 2, 1), LEVEL - 2);
  }

  // The box at a point of the canvas, or -1.
  at(x, y) {
    const { tree } = this;
    const depth = Math.floor((y + this.scroll.scrollTop) / LEVEL);
    const place = this.left + (x / this.scroll.clientWidth) * this.width;
    let node = 0;
    for (let level = 0; level < depth; level++) {
      let child = tree.child[node];
      while (child && !(place >= tree.x[child] && place < tree.x[child] + tree.total[child])) child = tree.next[child];
      if (!child) return -1;
      node = child;
    }
    return node;
  }

  zoom(node) {
    const { tree } = this;
    if (!tree.total[node]) return;
    this.zoomed = node;
    const from = [this.left, this.width], to = [tree.x[node], tree.total[node]];
    const length = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 160;
    const start = performance.now();
    const run = (this.running = {});
    const step = (now) => {
      if (this.running !== run) return;
      const part = length ? Math.min(1, Math.max(0, now - start) / length) : 1, eased = 1 - (1 - part) ** 3;
      [this.left, this.width] = from.map((value, i) => value + (to[i] - value) * eased);
      if (part < 1) {
        this.draw();
        requestAnimationFrame(step);
        return;
      }
      [this.left, this.width] = to;
      this.fit();
      this.reveal(node);
    };
    requestAnimationFrame(step);
  }

  // Scrolls so that a box can be seen.
  reveal(node) {
    const y = this.tree.depth(node) * LEVEL, { scroll } = this;
    if (y < scroll.scrollTop) scroll.scrollTop = Math.max(0, y - 3 * LEVEL);
    if (y + LEVEL > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = y - scroll.clientHeight / 2;
  }

  // The box next to the current one, by the name of an arrow key.
  move(key) {
    const { tree } = this, node = this.current < 0 ? this.zoomed : this.current;
    const heaviest = (child, best = 0) => {
      for (; child; child = tree.next[child]) if (tree.total[child] > (best ? tree.total[best] : 0)) best = child;
      return best;
    };
    if (key === "ArrowUp") return tree.parent[node];
    if (key === "ArrowDown") return heaviest(tree.child[node]) || node;
    const siblings = [];
    for (let child = tree.child[tree.parent[node]]; child && node; child = tree.next[child]) {
      if (tree.total[child]) siblings.push(child);
    }
    return siblings[siblings.indexOf(node) + (key === "ArrowRight" ? 1 : -1)] ?? node;
  }
}
