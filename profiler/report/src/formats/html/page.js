// The page: what is chosen, and what follows from it. The choice is kept in the address, so that it can be shared.

async function begin() {
  const byId = (id) => document.getElementById(id);
  const data = await load();
  const { facts } = data;
  const colours = new Colours(data);
  const flames = new Flames(byId("flames"), colours);
  const chosen = { held: 0, byLine: false, glue: false, internals: false, hidden: new Set(), threads: "all", search: "" };
  const times = new Times(byId("times"), data, colours, () => weigh());
  let tree, wanted;

  byId("command").textContent = byId("command").title = facts.command;
  byId("facts").textContent = facts.summary;
  const percent = (weight) => ((100 * weight) / (tree.total[0] || 1)).toFixed(1) + " %";
  const plain = (weight) => (facts.unit === "bytes" ? size : seconds)(weight * facts.period);

  function offerThreads() {
    const weights = new Float64Array(facts.threads.length);
    for (let i = 0; i < data.node.length; i++) weights[data.thread[i]] += data.weight[i];
    const byWeight = (a, b) => b.weight - a.weight;
    const processes = facts.processes.map((label, index) => {
      const threads = facts.threads.map((thread, own) => ({ ...thread, value: "t" + own, weight: weights[own] }));
      const own = threads.filter((thread) => thread.process === index).sort(byWeight);
      return { label, value: "p" + index, own, weight: own.reduce((sum, thread) => sum + thread.weight, 0) };
    });
    const option = (parent, value, text) => parent.append(Object.assign(document.createElement("option"), { value, text }));
    const select = byId("threads");
    option(select, "all", `All threads (${facts.threads.length})`);
    for (const process of processes.sort(byWeight)) {
      const group = Object.assign(document.createElement("optgroup"), { label: process.label });
      if (processes.length > 1) option(group, process.value, `whole process, ${plain(process.weight)}`);
      for (const thread of process.own) option(group, thread.value, `${thread.label}, ${plain(thread.weight)}`);
      select.append(group);
    }
  }

  function offerHeld() {
    const select = byId("held");
    select.hidden = !facts.held.length;
    facts.held.forEach((text, value) => select.append(Object.assign(document.createElement("option"), { value, text })));
  }

  function offerLanguages() {
    facts.categories.forEach(({ label, kind }, category) => {
      if (kind === "remark") return;
      const button = document.createElement("button"), colour = document.createElement("i");
      colour.style.background = colours.category(category);
      button.append(colour, label);
      button.title = "Show or hide these frames; their time goes to their callers";
      button.dataset.category = category;
      button.onclick = () => {
        if (!chosen.hidden.delete(category)) chosen.hidden.add(category);
        grow();
      };
      byId("languages").append(button);
    });
  }

  function grow() {
    data.weight = data.weights[chosen.held];
    tree = new Tree(data, chosen);
    byId("by").textContent = chosen.byLine ? "By line" : "By function";
    byId("by").setAttribute("aria-pressed", chosen.byLine);
    byId("glue").setAttribute("aria-pressed", chosen.glue);
    byId("internals").setAttribute("aria-pressed", chosen.internals);
    for (const button of byId("languages").children) {
      const off = chosen.hidden.has(+button.dataset.category);
      button.classList.toggle("off", off);
      button.setAttribute("aria-pressed", !off);
      button.firstChild.style.background = colours.category(+button.dataset.category);
    }
    weigh();
  }

  function weigh() {
    const own = chosen.threads;
    const number = +own.slice(1);
    wanted = facts.threads.map((thread, index) =>
      own === "all" || (own[0] === "p" ? thread.process === number : index === number));
    tree.weigh(wanted, times.from, times.to);
    times.leaf = tree.leaf;
    times.draw(wanted);
    find();
    flames.show(tree);
    describe(-1);
    remember();
  }

  function find() {
    const text = chosen.search;
    flames.matches = null;
    byId("found").textContent = "";
    if (!text) return;
    let test;
    try {
      const pattern = new RegExp(text, /[A-Z]/.test(text) ? "" : "i");
      test = (name) => pattern.test(name);
    } catch {
      test = (name) => name.includes(text);
    }
    const named = data.texts.map(test);
    flames.matches = Uint8Array.from(data.name, (name, own) => named[name] || named[data.file[own]]);
    byId("found").textContent = percent(tree.search(flames.matches));
  }

  function describe(node) {
    const shown = node < 0 ? flames.zoomed : node;
    const { self, total } = tree;
    byId("what").textContent = `${tree.name(shown)}  ${percent(total[shown])}, ${plain(total[shown])}`;
    const parts = [];
    if (self[shown] && shown) parts.push(`${percent(self[shown])} by itself`);
    if (tree.file(shown)) parts.push(tree.file(shown));
    if (!shown && !times.whole()) parts.push(`the axis shows ${seconds(times.first * facts.bucket)} to ${seconds(times.last * facts.bucket)} of ${seconds(facts.duration)}: z shows all`);
    if (!shown) parts.push(times.selected() ? `from ${seconds(times.from * facts.bucket)} to ${seconds(times.to * facts.bucket)}` : "click a box to zoom, drag on the time axis to select, z enlarges it");
    byId("where").textContent = parts.join("  \u00b7  ");
  }

  function point(node) {
    if (node === flames.current) return;
    flames.current = node;
    flames.draw();
    describe(node);
  }

  function remember() {
    const state = new URLSearchParams();
    if (chosen.search) state.set("search", chosen.search);
    if (chosen.held) state.set("held", chosen.held);
    if (chosen.byLine) state.set("by", "line");
    if (chosen.glue !== (facts.native === "show")) state.set("glue", chosen.glue ? "shown" : "hidden");
    if (chosen.internals !== (facts.native !== "hide")) state.set("internals", chosen.internals ? "shown" : "charged");
    if (chosen.hidden.size) state.set("hidden", [...chosen.hidden].join());
    if (chosen.threads !== "all") state.set("threads", chosen.threads);
    if (times.selected()) state.set("time", `${times.from}-${times.to}`);
    const hash = state.toString();
    if (hash !== location.hash.slice(1)) history.replaceState(null, "", hash ? "#" + hash : location.pathname);
  }

  function recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    chosen.search = byId("search").value = state.get("search") ?? "";
    chosen.held = facts.held[+state.get("held")] ? +state.get("held") : 0;
    byId("held").value = chosen.held;
    chosen.byLine = state.get("by") === "line";
    chosen.glue = (state.get("glue") ?? (facts.native === "show" ? "shown" : "")) === "shown";
    chosen.internals = (state.get("internals") ?? (facts.native === "hide" ? "" : "shown")) === "shown";
    chosen.hidden = new Set((state.get("hidden") ?? "").split(",").filter(Boolean).map(Number));
    chosen.threads = state.get("threads") ?? "all";
    byId("threads").value = chosen.threads;
    const time = (state.get("time") ?? "").split("-").map(Number);
    if (time.length === 2 && time[1] > time[0]) [times.from, times.to] = time;
  }

  const place = (event) => {
    const box = flames.canvas.getBoundingClientRect();
    return flames.at(event.clientX - box.left, event.clientY - box.top);
  };
  flames.canvas.addEventListener("mousemove", (event) => point(place(event)));
  flames.canvas.addEventListener("mouseleave", () => point(-1));
  flames.canvas.addEventListener("click", (event) => {
    const node = place(event);
    if (node >= 0) flames.zoom(node);
    describe(node);
  });
  flames.scroll.addEventListener("scroll", () => flames.draw());
  byId("search").addEventListener("input", (event) => {
    chosen.search = event.target.value;
    find();
    flames.draw();
    remember();
  });
  byId("threads").addEventListener("change", (event) => {
    chosen.threads = event.target.value;
    weigh();
  });
  byId("held").addEventListener("change", (event) => {
    chosen.held = +event.target.value;
    grow();
  });
  const keys = {
    l: () => { chosen.byLine = !chosen.byLine; grow(); },
    g: () => { chosen.glue = !chosen.glue; grow(); },
    n: () => { chosen.internals = !chosen.internals; grow(); },
    z: () => { times.enlarge(); describe(-1); },
    "/": () => byId("search").focus(),
    Enter: () => { if (flames.current >= 0) flames.zoom(flames.current); },
    Escape: () => {
      if (document.activeElement === byId("search")) byId("search").blur();
      if (chosen.search) {
        chosen.search = byId("search").value = "";
        find();
        flames.draw();
        remember();
      } else if (flames.zoomed) flames.zoom(0);
      else if (times.selected()) {
        times.clear();
        weigh();
      } else if (!times.whole()) times.enlarge();
      describe(-1);
    },
  };
  byId("by").onclick = keys.l;
  byId("glue").onclick = keys.g;
  byId("internals").onclick = keys.n;
  byId("internals").hidden = data.charged.every((other, node) => other === node);
  byId("reset").onclick = () => {
    chosen.search = byId("search").value = "";
    chosen.hidden.clear();
    [chosen.byLine, chosen.threads] = [false, "all"];
    [chosen.glue, chosen.internals] = [facts.native === "show", facts.native !== "hide"];
    byId("threads").value = "all";
    times.clear();
    grow();
  };
  addEventListener("keydown", (event) => {
    const typing = /INPUT|SELECT/.test(event.target.tagName ?? "");
    if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
    if (event.key.startsWith("Arrow")) {
      const node = flames.move(event.key);
      flames.reveal(node);
      point(node);
      event.preventDefault();
    } else if (keys[event.key] && !(event.key === "Enter" && event.target.tagName === "BUTTON")) {
      keys[event.key]();
      event.preventDefault();
    }
  });
  const redraw = () => {
    colours.refresh();
    times.draw();
    flames.fit();
  };
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { redraw(); grow(); });

  offerThreads();
  offerHeld();
  offerLanguages();
  recall();
  grow();
  document.documentElement.dataset.painted = Math.round(performance.now());
  document.documentElement.dataset.boxes = flames.boxes;
}

begin().catch((error) => {
  document.getElementById("what").textContent = "This page cannot be shown here: " + error;
});
