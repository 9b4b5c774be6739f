// The time axis: how many CPUs were busy at each moment, coloured by the language of the innermost frame; dragging
// selects a part.

class Times {
  constructor(canvas, data, colours, changed) {
    Object.assign(this, { canvas, data, colours, changed });
    this.context = canvas.getContext("2d", { alpha: false });
    this.end = Math.max(1, data.facts.buckets);
    this.clear();
    let start = null;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * this.end;
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
      if (Math.abs(place(event) - start) < this.end / 300) this.clear();
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

  draw(wanted = this.wanted) {
    this.wanted = wanted;
    const { context, canvas, data, colours } = this, ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.back;
    context.fillRect(0, 0, width, height);
    // Bars of three pixels and some samples: narrower ones show the timer's ticks, not the program.
    const bars = Math.max(1, Math.min(Math.floor(width / 3), this.end, Math.max(40, data.node.length / 4)) | 0);
    const kinds = data.facts.categories.length;
    const weights = new Float64Array(bars * kinds);
    for (let i = 0; i < data.node.length; i++) {
      if (!wanted[data.thread[i]]) continue;
      const bar = Math.min(bars - 1, Math.floor((data.time[i] * bars) / this.end));
      const place = data.frame[data.node[i]] >> 1;
      weights[bar * kinds + (data.node[i] ? data.category[data.function[place]] : 0)] += data.weight[i];
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
    if (this.selected()) {
      context.globalAlpha = 0.75;
      context.fillStyle = colours.back;
      context.fillRect(0, 0, (this.from / this.end) * width, height);
      context.fillRect((this.to / this.end) * width, 0, width, height);
      context.globalAlpha = 1;
      context.fillStyle = colours.ink;
      for (const edge of [this.from, this.to]) context.fillRect((edge / this.end) * width - 0.5, 0, 1, height);
    }
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    context.fillStyle = colours.faint;
    const duration = Math.max(1, data.facts.duration);
    const step = roundStep(duration / Math.max(1, Math.min(8, Math.floor(width / 110))));
    for (let at = 0; at <= duration; at += step) {
      const x = (at / duration) * width;
      context.textAlign = at === 0 ? "left" : x > width - 40 ? "right" : "center";
      context.fillText(seconds(at), at === 0 ? 14 : Math.min(x, width - 14), 3);
    }
  }
}

// The next of 1, 2, 5, 10, 20 ... that is not smaller: marks of an axis are read as round numbers.
function roundStep(least) {
  const ten = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * ten).find((step) => step >= least * 0.999);
}

// Nanoseconds for people.
function seconds(ns) {
  if (ns >= 1e9) return (ns / 1e9).toFixed(ns < 1e10 ? 2 : 1) + " s";
  return ns ? (ns / 1e6).toFixed(ns < 1e7 ? 1 : 0) + " ms" : "0";
}
