// Segments at a moment, end to end in rows, and the causes of all moments side by side.

const ROW = 22;
const ROW_GAP = 4;

class SegmentMap {
  constructor(state) {
    this.state = state;
    this.canvas = byId("map");
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => showTip("map-tip", this.canvas, 0, 0, ""));
    this.canvas.addEventListener("click", (event) => {
      const found = this.at(event);
      if (found && found.life >= 0) this.state.choose(found.life, this.state.op);
    });
  }

  // Segments of the moment in the chosen order, and where each begins in the row of bytes.
  layout(run, moment) {
    const list = [];
    for (let segment = run.segmentFrom[moment]; segment < run.segmentFrom[moment + 1]; segment++) list.push(segment);
    const order = byId("map-order").value;
    if (order === "size") list.sort((a, b) => run.size[b] - run.size[a] || a - b);
    if (order === "kept") list.sort((a, b) => run.kept(b) - run.kept(a) || a - b);
    this.list = list;
    this.from = sums(list.map((segment) => run.size[segment]));
  }

  draw() {
    const { history, run, moment } = this.state;
    const to = pen(this.canvas), colours = ink();
    const { context, width, height } = to;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    this.list = [];
    if (!run || moment < 0) return;
    this.layout(run, moment);
    const rows = Math.max(1, Math.floor((height - ROW_GAP) / (ROW + ROW_GAP)));
    this.perRow = Math.max(this.from[this.list.length] / rows, 1);
    this.perPixel = this.perRow / width;
    this.live = [];
    const op = run.op[moment];
    history.each(op, (life) => { if (run.place[life] >= 0) this.live.push(life); });
    this.live.sort((a, b) => run.place[a] - run.place[b]);
    this.places = Float64Array.from(this.live, (life) => run.place[life]);
    this.list.forEach((segment, n) => this.segment(context, width, segment, this.from[n], colours));
  }

  // Draws bytes of the row of all segments, in as many rows as they reach into.
  strip(context, width, from, size, colour) {
    const end = from + size;
    context.fillStyle = colour;
    for (let row = Math.floor(from / this.perRow); row * this.perRow < end; row++) {
      const x0 = (Math.max(from, row * this.perRow) - row * this.perRow) / this.perPixel;
      const x1 = (Math.min(end, (row + 1) * this.perRow) - row * this.perRow) / this.perPixel;
      if (x1 - x0 > 0.02) context.fillRect(x0, ROW_GAP + row * (ROW + ROW_GAP), Math.max(x1 - x0, 0.3), ROW);
    }
  }

  segment(context, width, segment, from, colours) {
    const state = this.state, { history, run } = state;
    const begin = run.begin[segment], end = begin + run.size[segment];
    this.strip(context, width, from, run.size[segment], colours.small);
    for (let piece = run.pieceFrom[segment]; piece < run.pieceFrom[segment + 1]; piece++) {
      this.strip(context, width, from + run.pieceBegin[piece] - begin, run.pieceSize[piece], CAUSE_COLOURS[run.what[piece]]);
    }
    for (let at = countUpTo(this.places, begin - 1); at < this.live.length && this.places[at] < end; at++) {
      const life = this.live[at];
      if (history.size[life] < this.perPixel / 8 && life !== state.chosen) continue;
      const colour = life === state.chosen ? colours.ink : state.colourOf(life);
      this.strip(context, width, from + this.places[at] - begin, history.size[life], colour);
      if (history.size[life] > 3 * this.perPixel) this.strip(context, width, from + this.places[at] - begin, this.perPixel / 2, colours.paper);
    }
    this.strip(context, width, from, this.perPixel * 1.4, colours.ink);
  }

  at(event) {
    const { run, history } = this.state;
    if (!this.list || !this.list.length) return null;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const row = Math.floor((y - ROW_GAP / 2) / (ROW + ROW_GAP));
    const byte = row * this.perRow + x * this.perPixel;
    const n = countUpTo(this.from, byte) - 1;
    if (row < 0 || n < 0 || n >= this.list.length) return null;
    const segment = this.list[n], place = run.begin[segment] + byte - this.from[n];
    const last = countUpTo(this.places, place) - 1;
    let life = last >= 0 ? this.live[last] : -1;
    if (life >= 0 && run.place[life] + history.size[life] <= place) life = -1;
    let cause = -1, size = 0;
    for (let piece = run.pieceFrom[segment]; piece < run.pieceFrom[segment + 1]; piece++) {
      if (run.pieceBegin[piece] <= place && place < run.pieceBegin[piece] + run.pieceSize[piece]) {
        [cause, size] = [run.what[piece], run.pieceSize[piece]];
      }
    }
    return { x, y, segment, life: cause < 0 ? life : -1, cause, size };
  }

  hover(event) {
    const found = this.at(event);
    if (!found) return showTip("map-tip", this.canvas, 0, 0, "");
    const { run } = this.state;
    const lines = [];
    if (found.cause >= 0) lines.push(`${bytes(found.size)} ${run.about.moments.causes[found.cause]}`);
    else if (found.life >= 0) lines.push(this.state.tell(found.life, this.state.op));
    const pool = run.about.moments.pools[run.pool[found.segment]];
    const flags = [pool, `stream ${run.stream[found.segment]}`];
    if (run.flags[found.segment] & 1) flags.push("private");
    if (run.flags[found.segment] & 2) flags.push("expandable");
    lines.push(`segment ${hex(run.address(run.begin[found.segment]))}, ${bytes(run.size[found.segment])}, ${flags.filter(Boolean).join(", ")}, ${run.live[found.segment]} blocks live`);
    const pin = run.pin[found.segment] - 1;
    if (pin >= 0) lines.push(`kept longest by ${bytes(this.state.history.size[pin])}, ${this.state.history.siteText(pin)}`);
    showTip("map-tip", this.canvas, found.x, found.y, lines.join("\n"));
  }
}

// Causes of all moments, as far as the timeline shows them.
function drawCauses(state) {
  const canvas = byId("causes");
  const { context, width, height } = pen(canvas);
  const colours = ink(), run = state.run, view = state.timeline.view;
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, height);
  if (!run || !run.op.length) return;
  let most = 1;
  for (let moment = 0; moment < run.op.length; moment++) most = Math.max(most, run.momentReserved[moment] - run.momentRequested[moment]);
  const x = (op) => ((op - view.t0) / (view.t1 - view.t0)) * width;
  for (let moment = 0; moment < run.op.length; moment++) {
    const from = x(run.op[moment]), to = moment + 1 < run.op.length ? x(run.op[moment + 1]) : width;
    if (to < 0 || from > width) continue;
    let y = height;
    run.causes(moment).forEach((value, cause) => {
      const high = (value / (most * 1.08)) * height;
      context.fillStyle = CAUSE_COLOURS[cause];
      context.fillRect(from, y - high, to - from + 0.5, high);
      y -= high;
    });
  }
  context.fillStyle = colours.ink;
  context.fillRect(Math.round(x(state.op + 0.5)), 0, 1, height);
  context.font = "12px system-ui, sans-serif";
  const text = `up to ${bytes(most)} hold nothing that was asked for`;
  context.lineWidth = 3;
  context.strokeStyle = colours.paper;
  context.strokeText(text, 4, 14);
  context.fillText(text, 4, 14);
}
