// A hue for each category; a function's name chooses the shade, so that it looks the same in every picture.

const HUES = { native: 27, jit: 140, kernel: 0, waiting: 300, remark: -1 };
const LANGUAGES = [212, 275, 185, 330, 60];
const SHADES = 8;

class Colours {
  constructor(data) {
    this.data = data;
    let language = 0;
    this.hues = data.facts.categories.map(({ kind }) => HUES[kind] ?? LANGUAGES[language++ % LANGUAGES.length]);
    this.shade = Uint8Array.from(data.name, (name) => {
      let hash = 0;
      for (const c of data.texts[name]) hash = (Math.imul(hash, 31) + c.charCodeAt(0)) | 0;
      return (hash ^ (hash >>> 11)) & (SHADES - 1);
    });
    this.refresh();
  }

  refresh() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    [this.back, this.ink, this.faint, this.line, this.mark] = ["--back", "--ink", "--faint", "--line", "--mark"].map(of);
    const colour = (hue, shade) => {
      const saturation = hue < 0 ? 4 : dark ? 42 : 78;
      const light = dark ? 30 + shade * 1.6 : 69 + shade * 1.6;
      return `hsl(${Math.max(hue, 0) + (shade % 3) * 4 - 4} ${saturation}% ${light}%)`;
    };
    this.boxes = this.hues.map((hue) => Array.from({ length: SHADES }, (_, shade) => colour(hue, shade)));
    this.narrow = dark ? "#4a4b4f" : "#c9c7c0";
    this.root = dark ? "#333539" : "#e4e3de";
    this.dimmed = dark ? "#2b2c2f" : "#ecebe7";
  }

  category(category) {
    return this.boxes[category][SHADES / 2];
  }

  of(own) {
    return this.boxes[this.data.category[own]][this.shade[own]];
  }
}
