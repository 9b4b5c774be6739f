// The time axis: how many CPUs were busy at each moment, coloured by the language of the innermost frame; dragging
// selects a part. It begins and ends where nearly all of the load is, so that a busy minute of a long recording can be
// seen.

// Share of the load that may lie outside of the axis at first, and how much shorter it must become by that.
const OUTSIDE = 0.005;
const SHORTER = 0.5;

class Times {
  constructor(canvas, data, colours, changed) {
    Object.assign(this, { canvas, data, colours, changed });
    this.context = canvas.getContext("2d", { alpha: false });
    this.end = Math.max(1, data.facts.buckets);
    [this.first, this.last] = this.busy();
    this.clear();
    let start = null;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      return this.first + part * (this.last - this.first);
    };
    canvas.addEventListener("pointerdown", (event) => {
      start = place(event);
      if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const now = place(event);
      [this.from, this.to] = [Math.floor(Math.min(start, now)), Math.ceil(Math.max(start, now))];
      this.draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (start === null) return;
      // A click without a drag takes the selection away.
      if (Math.abs(place(event) - start) < (this.last - this.first) / 300) this.clear();
      start = null;
      this.draw();
      this.changed();
    });
  }

  clear() {
    [this.from, this.to] = [0, Infinity];
  }

  selected() {
    return this.to !== Infinity;
  }

  // The moments between which nearly all of the load is; all of them if that is most of the time.
  busy() {
    const { data, end } = this;
    const load = new Float64Array(end);
    let all = 0;
    for (let i = 0; i < data.node.length; i++) {
      load[Math.min(end - 1, data.time[i])] += data.weight[i];
      all += data.weight[i];
    }
    let first = 0, last = end, before = 0, after = 0;
    while (first < last && before + load[first] <= all * OUTSIDE) before += load[first++];
    while (last > first && after + load[last - 1] <= all * OUTSIDE) after += load[--last];
    // A sample stands for the time before it.
    first = Math.max(0, first - 1);
    const margin = Math.ceil((last - first) / 20);
    [first, last] = [Math.max(0, first - margin), Math.min(end, last + margin)];
    return last - first < end * SHORTER && last > first ? [first, last] : [0, end];
  }

  whole() {
    return this.first === 0 && this.last === this.end;
  }

  // Enlarges the selected part, or shows all of the time, or where the load is.
  enlarge() {
    if (this.selected()) [this.first, this.last] = [Math.max(0, this.from), Math.min(this.end, Math.max(this.to, this.from + 1))];
    else [this.first, this.last] = this.whole() ? this.busy() : [0, this.end];
    this.draw();
  }

  draw(wanted = this.wanted) {
    this.wanted = wanted;
    const { context, canvas, data, colours, first, last } = this, ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.back;
    context.fillRect(0, 0, width, height);
    // Bars of three pixels and some samples: narrower ones show the timer's ticks, not the program.
    const span = last - first;
    const bars = Math.max(1, Math.min(Math.floor(width / 3), span, Math.max(40, data.node.length / 4)) | 0);
    const kinds = data.facts.categories.length;
    const weights = new Float64Array(bars * kinds);
    const long = span / bars;
    for (let i = 0; i < data.node.length; i++) {
      if (!wanted[data.thread[i]]) continue;
      const node = this.leaf ? this.leaf[data.node[i]] : data.node[i], place = data.frame[node] >> 1;
      const kind = node ? data.category[data.function[place]] : 0;
      const [from, to] = spanOf(data, i), share = data.weight[i] / (to - from);
      if (to <= first || from >= last) continue;
      let bar = Math.max(0, Math.floor((from - first) / long));
      for (; bar < bars && first + bar * long < to; bar++) {
        const part = Math.min(to, first + (bar + 1) * long) - Math.max(from, first + bar * long);
        if (part > 0) weights[bar * kinds + kind] += share * part;
      }
    }
    let highest = 0;
    for (let bar = 0; bar < bars; bar++) {
      let sum = 0;
      for (let kind = 0; kind < kinds; kind++) sum += weights[bar * kinds + kind];
      highest = Math.max(highest, sum);
    }
    const room = height - 18, wide = width / bars;
    for (let bar = 0; bar < bars; bar++) {
      let y = height;
      for (let kind = 0; kind < kinds; kind++) {
        const tall = highest ? (weights[bar * kinds + kind] / highest) * room : 0;
        if (!tall) continue;
        y -= tall;
        context.fillStyle = colours.category(kind);
        context.fillRect(bar * wide, y, Math.max(wide - 0.5, 0.7), tall);
      }
    }
    const at = (moment) => ((Math.min(moment, last) - first) / span) * width;
    if (this.selected()) {
      context.globalAlpha = 0.75;
      context.fillStyle = colours.back;
      context.fillRect(0, 0, Math.max(0, at(this.from)), height);
      context.fillRect(at(this.to), 0, width, height);
      context.globalAlpha = 1;
      context.fillStyle = colours.ink;
      for (const edge of [this.from, this.to]) context.fillRect(at(edge) - 0.5, 0, 1, height);
    }
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    context.fillStyle = colours.faint;
    const begin = first * data.facts.bucket;
    const duration = Math.max(1, Math.min(last * data.facts.bucket, data.facts.duration) - begin);
    const step = roundStep(duration / Math.max(1, Math.min(8, Math.floor(width / 110))));
    for (let mark = Math.ceil(begin / step) * step; mark <= begin + duration; mark += step) {
      const x = ((mark - begin) / duration) * width;
      context.textAlign = x < 14 ? "left" : x > width - 40 ? "right" : "center";
      context.fillText(seconds(mark), x < 14 ? 14 : Math.min(x, width - 14), 3);
    }
  }
}

// The moments for which a sample stands: its weight is that of the time before it.
function spanOf(data, i) {
  const to = data.time[i] + 1;
  if (data.facts.unit === "bytes") return [to - 1, to];
  return [Math.max(0, to - Math.max(1, (data.weight[i] * data.facts.period) / data.facts.bucket)), to];
}

// The next of 1, 2, 5, 10, 20 ... that is not smaller: marks of an axis are read as round numbers.
function roundStep(least) {
  const ten = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * ten).find((step) => step >= least * 0.999);
}

// Bytes for people.
function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.length; unit++) bytes /= 1024;
  return `${unit ? bytes.toFixed(2) : bytes} ${units[unit]}`;
}

// Nanoseconds for people.
function seconds(ns) {
  if (ns >= 1e9) return (ns / 1e9).toFixed(ns < 1e10 ? 2 : 1) + " s";
  return ns ? (ns / 1e6).toFixed(ns < 1e7 ? 1 : 0) + " ms" : "0";
}
