// The state of the page, and what its controls do.

const SITES_COLOURED = 10;

const state = {
  data: null, about: null, history: null, run: null, timeline: null, map: null,
  histories: [], order: "stack", group: "category", query: "", matches: null,
  chosen: -1, hovered: NOTHING, op: 0, moment: -1, colours: null, groupNames: [], groupColours: [],

  // One line or two on what is at a place of the timeline.
  tell(what, op) {
    const history = this.history;
    if (what >= 0) {
      const death = history.death[what];
      const until = death === Infinity ? "not freed" : `to op ${count(death)}`;
      return `${bytes(history.size[what])}, ${history.category(what)}\n${history.siteText(what)}\nfrom op ${count(history.birth[what])}, ${until}`;
    }
    if (what <= CAUSE) return `free: ${this.run.about.moments.causes[CAUSE - what]}\nafter op ${count(op)}`;
    if (what <= REST) return `${this.groupNames[REST - what]}: buffers too small to be drawn alone\nafter op ${count(op)}`;
    if (what === SMALL) return `buffers too small to be drawn, and what they are rounded up by\nafter op ${count(op)}`;
    return `op ${count(op)}: ${bytes(history.live[history.eventAt(op)] ?? 0)} live${this.run ? `, ${bytes(this.run.reservedAt(op))} reserved` : ""}`;
  },

  setHistory(number) {
    this.histories[number] ??= new History(this.data.histories[number], this.bytes);
    this.history = this.histories[number];
    this.about = this.history.about;
    this.run = this.history.runs[this.about.first_run] ?? null;
    Object.assign(this, { chosen: -1, hovered: NOTHING, query: "", matches: null });
    byId("search").value = "";
    byId("run").replaceChildren(...this.history.runs.map((run, at) => make("option", run.about.label, { value: at })));
    byId("run").value = this.about.first_run;
    byId("run").disabled = this.history.runs.length < 2;
    showAnswer(this.about);
    const first = this.run?.about.first_oom ?? this.history.peakOp;
    this.setGroup();
    this.runChanged();
    this.setOp(first);
    this.timeline.everything();
  },

  setRun(number) {
    this.run = this.history.runs[number] ?? null;
    byId("run").value = number;
    this.runChanged();
    this.setOp(this.op);
    this.timeline.everything();
  },

  runChanged() {
    const run = this.run, none = !run || run.about.first_oom === null;
    for (const id of ["to-oom", "map-oom"]) byId(id).disabled = none;
    const moments = run ? run.op.length : 0;
    Object.assign(byId("scrub"), { max: Math.max(0, moments - 1), disabled: moments < 2 });
    for (const id of ["before", "after", "map-peak"]) byId(id).disabled = moments < 2;
    this.causeLegend();
    showWhatIf(this);
  },

  setGroup() {
    const history = this.history, { categories, sites } = this.about.buffers;
    if (this.group === "category") {
      this.groupNames = categories;
      history.setGroups(Uint8Array.from(history.told, (told) => told >> 1), categories.length);
      this.groupColours = GROUP_COLOURS.slice(0, 6).concat([REST_COLOUR]);
    } else {
      const held = new Map();
      history.each(history.peakOp, (life) => held.set(history.site[life], (held.get(history.site[life]) ?? 0) + history.size[life]));
      const top = [...held].sort((a, b) => b[1] - a[1]).slice(0, SITES_COLOURED).map(([site]) => site);
      const number = new Map(top.map((site, at) => [site, at]));
      this.groupNames = top.map((site) => sites[site] || "(no site recorded)").concat(["other sites"]);
      history.setGroups(Uint8Array.from(history.site, (site) => number.get(site) ?? top.length), top.length + 1);
      this.groupColours = GROUP_COLOURS.filter((colour) => colour !== REST_COLOUR).slice(0, top.length).concat([REST_COLOUR]);
    }
    this.recolour();
  },

  colourOf(life) {
    return this.matches && !this.matches[life] ? ink().line : this.groupColours[this.history.groupOf[life]];
  },

  // Colours of buffers, in three shades so that neighbours can be told apart; what a search does not mean is pale.
  recolour() {
    const { history, matches } = this, look = ink();
    const shades = this.groupColours.map((colour) => [pixel(colour, "#ffffff", 0.1), pixel(colour), pixel(colour, "#000000", 0.14)]);
    const pale = this.groupColours.map((colour) => pixel(look.paper, colour, 0.13));
    const life = new Uint32Array(history.count);
    for (let at = 0; at < history.count; at++) {
      const group = history.groupOf[at];
      life[at] = matches && !matches[at] ? pale[group] : shades[group][at % 3];
    }
    const other = new Uint32Array(128).fill(pixel(look.paper));
    other[-SMALL] = pixel(look.small);
    this.groupColours.forEach((colour, group) => { other[-REST + group] = matches ? pale[group] : pixel(colour, look.paper, 0.35); });
    CAUSE_COLOURS.forEach((colour, cause) => { other[-CAUSE + cause] = pixel(colour, look.paper, 0.15); });
    this.colours = { life, other, chosen: pixel(look.ink), hovered: pixel("#f0e442") };
    const used = new Set(history.groupOf);
    const entries = this.groupNames.map((name, group) => [name, this.groupColours[group], group]).filter(([, , group]) => used.has(group));
    legend("legend", entries);
    this.causeLegend();
  },

  // Those that the run has.
  causeLegend() {
    const run = this.run;
    if (!run) return;
    const names = run.about.moments.causes, most = names.map(() => 0);
    run.causeBytes.forEach((value, at) => { most[at % names.length] = Math.max(most[at % names.length], value); });
    const entries = names.map((name, cause) => [name, CAUSE_COLOURS[cause]]).filter((_, cause) => most[cause] > 0);
    legend("map-legend", entries.concat([["small buffers, rounding", ink().small]]));
  },

  setOp(op) {
    this.op = Math.min(Math.max(op, 0), this.history.ops - 1);
    this.moment = this.run ? Math.max(this.run.momentAt(this.op), this.run.op.length ? 0 : -1) : -1;
    byId("scrub").value = Math.max(0, this.moment);
    showMoment(this);
    showMapWords(this);
    showLife(this);
    if (this.matches) showFound(this);
    this.map.draw();
    drawCauses(this);
    this.timeline.paint();
  },

  toMoment(moment) {
    if (this.run && this.run.op.length) this.setOp(this.run.op[Math.min(Math.max(moment, 0), this.run.op.length - 1)]);
  },

  choose(life, op) {
    this.chosen = life;
    this.setOp(op);
  },

  showLife(life) {
    const history = this.history, end = Math.min(history.death[life], history.ops);
    const span = Math.max(end - history.birth[life], 8) * 1.4, middle = (history.birth[life] + end) / 2;
    Object.assign(this.timeline.view, { t0: middle - span / 2, t1: middle + span / 2 });
    this.timeline.keepInside();
    this.timeline.draw();
  },

  setQuery(query) {
    this.query = query;
    byId("search").value = query;
    this.matches = search(this.history, query);
    this.recolour();
    showFound(this);
    this.timeline.paint();
    this.map.draw();
  },

  hover(what) {
    byId("tip").hidden = true;
    if (what === this.hovered) return;
    this.hovered = what;
    this.timeline.paint();
  },

  drawn() {
    if (!this.first) {
      this.first = performance.now();
      performance.mark("timeline drawn");
    }
    drawCauses(this);
  },

  redraw() {
    if (!this.history) return;
    this.recolour();
    this.map.draw();
    this.timeline.draw();
  },
};

function listen() {
  const on = (id, event, act) => byId(id).addEventListener(event, act);
  const timeline = state.timeline;
  on("history", "change", (event) => state.setHistory(Number(event.target.value)));
  on("run", "change", (event) => state.setRun(Number(event.target.value)));
  on("order", "change", (event) => { state.order = event.target.value; timeline.everything(); });
  on("group", "change", (event) => { state.group = event.target.value; state.setGroup(); timeline.draw(); state.map.draw(); });
  on("in", "click", () => timeline.zoom(ZOOM, 0.5));
  on("out", "click", () => timeline.zoom(1 / ZOOM, 0.5));
  on("left", "click", () => timeline.move(-0.2));
  on("right", "click", () => timeline.move(0.2));
  on("all", "click", () => timeline.everything());
  on("to-peak", "click", () => goTo(state.history.peakOp));
  on("to-oom", "click", () => goTo(state.run.about.first_oom));
  on("map-peak", "click", () => state.setOp(state.run.about.peak_op));
  on("map-oom", "click", () => state.setOp(state.run.about.first_oom));
  on("before", "click", () => state.toMoment(state.moment - 1));
  on("after", "click", () => state.toMoment(state.moment + 1));
  on("scrub", "input", (event) => state.toMoment(Number(event.target.value)));
  on("map-order", "change", () => state.map.draw());
  on("causes", "click", (event) => {
    const box = event.target.getBoundingClientRect(), view = timeline.view;
    state.setOp(Math.floor(view.t0 + ((event.clientX - box.left) / box.width) * (view.t1 - view.t0)));
  });
  let waiting = 0;
  on("search", "input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => state.setQuery(event.target.value), 120);
  });
  on("theme", "click", () => {
    const next = dark() ? "light" : "dark";
    document.documentElement.classList.remove("light", "dark");
    document.documentElement.classList.add(next);
    state.redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.redraw());
  window.addEventListener("resize", () => state.redraw());
  for (const [event, value] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(event, () => {
      printing = value;
      if (!state.history) return;
      state.recolour();
      state.map.draw();
      timeline.drawNow();
    });
  }
  document.addEventListener("keydown", keys);
}

function goTo(op) {
  if (op === null || op === undefined) return;
  state.timeline.around(op);
  state.setOp(op);
}

// Keys of the whole page, but where a text is typed or a control has its own.
function keys(event) {
  const typed = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape") {
    event.target.blur?.();
    state.setQuery("");
    state.choose(-1, state.op);
    return;
  }
  if (typed || event.ctrlKey || event.metaKey || event.altKey || !state.history) return;
  const timeline = state.timeline;
  const acts = {
    "+": () => timeline.zoom(ZOOM, 0.5), "=": () => timeline.zoom(ZOOM, 0.5), "-": () => timeline.zoom(1 / ZOOM, 0.5),
    ArrowLeft: () => timeline.move(-0.1), ArrowRight: () => timeline.move(0.1),
    "0": () => timeline.everything(), p: () => goTo(state.history.peakOp), o: () => goTo(state.run?.about.first_oom),
    ",": () => state.toMoment(state.moment - 1), ".": () => state.toMoment(state.moment + 1), "/": () => byId("search").focus(),
  };
  if (event.target === timeline.canvas) {
    acts.ArrowUp = () => timeline.move(0, 0.1);
    acts.ArrowDown = () => timeline.move(0, -0.1);
  }
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

async function start() {
  state.data = JSON.parse(byId("data").textContent);
  const names = state.data.histories.map((history) => history.name);
  document.title = `${names.join(", ")} \u2013 vramlab report`;
  byId("title").textContent = names.length === 1 ? names[0] : "vramlab report";
  byId("history").replaceChildren(...names.map((name, at) => make("option", name, { value: at })));
  byId("history-label").hidden = names.length < 2;
  byId("footer").textContent = `Written by vramlab ${state.data.vramlab}. Each figure is of a replay in simulation, or counted on this page from the buffers that it holds. Nothing is loaded from a network.`;
  state.about = state.data.histories[0];
  showAnswer(state.about);
  showWhatIf(state);
  // the words are painted before the buffers are unpacked
  await new Promise((painted) => requestAnimationFrame(() => setTimeout(painted)));
  state.bytes = await unpack(byId("columns").textContent);
  byId("columns").textContent = "";
  state.timeline = new Timeline(state);
  state.map = new SegmentMap(state);
  listen();
  state.setHistory(0);
}

start().catch((error) => {
  byId("footer").textContent = `The page cannot be drawn: ${error}. It needs a browser of 2024 or later (light-dark colours, DecompressionStream).`;
  throw error;
});
