// What the page holds: facts as JSON, and columns of numbers, packed by gzip and base64. Each column begins with its
// size in bytes, four of them; its numbers are varints, the least significant seven bits first.

async function unpack(base64) {
  let bytes;
  if (Uint8Array.fromBase64) {
    bytes = Uint8Array.fromBase64(base64);
  } else {
    const text = atob(base64);
    bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  }
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

class Columns {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  next() {
    const size = new DataView(this.bytes.buffer, this.at, 4).getUint32(0, true);
    this.at += 4 + size;
    return this.bytes.subarray(this.at - size, this.at);
  }

  texts() {
    return new TextDecoder().decode(this.next()).split("\n");
  }

  numbers(count) {
    const bytes = this.next(), out = new Uint32Array(count);
    for (let i = 0, at = 0; i < count; i++) {
      let byte = bytes[at++], n = byte & 127;
      for (let shift = 7; byte > 127; shift += 7) {
        byte = bytes[at++];
        n |= (byte & 127) << shift;
      }
      out[i] = n;
    }
    return out;
  }
}

// The recording: names; functions; places (a function and a line); a tree of frames in preorder, whose node 0 is the
// root of all; samples.
async function load() {
  const facts = JSON.parse(document.getElementById("facts-of-page").textContent);
  const columns = new Columns(await unpack(document.getElementById("columns").textContent));
  const data = { facts, texts: columns.texts() };
  const { functions, places, nodes, samples } = facts.counts;
  data.name = columns.numbers(functions);
  data.file = columns.numbers(functions);
  data.category = columns.numbers(functions);
  // The place of each function in the order of their names.
  const { texts } = data, compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const byName = Uint32Array.from(data.name.keys()).sort((a, b) =>
    compare(texts[data.name[a]], texts[data.name[b]]) || compare(texts[data.file[a]], texts[data.file[b]]));
  data.rank = new Uint32Array(functions);
  byName.forEach((own, place) => { data.rank[own] = place; });
  data.function = columns.numbers(places);
  data.line = columns.numbers(places);
  const up = columns.numbers(nodes);
  // A place, and in the lowest bit whether the frame is glue.
  data.frame = columns.numbers(nodes);
  data.parent = new Uint32Array(nodes);
  const path = [0];
  for (let node = 1; node < nodes; node++) {
    path.length -= up[node];
    data.parent[node] = path[path.length - 1];
    path.push(node);
  }
  // Without an interpreter's internals: the node, plus one, to which a node's time is charged; 0: the node itself.
  data.charged = columns.numbers(nodes).map((other, node) => (other ? other - 1 : node));
  data.node = columns.numbers(samples);
  data.thread = columns.numbers(samples);
  // Of allocations: held at the peak, at the end, allocated in all, temporary. The page shows one of them.
  data.weights = (facts.held.length ? facts.held : [""]).map(() => columns.numbers(samples));
  data.weight = data.weights[0];
  const since = columns.numbers(samples);
  data.time = new Uint32Array(samples);
  for (let i = 0, time = 0; i < samples; i++) data.time[i] = time += since[i];
  return data;
}
