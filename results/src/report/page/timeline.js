// The timeline: which part of the run is seen, drawn on a canvas, and what the pointer does there.

const ZOOM = 1.25;
const FRAME_MS = 20;

class Timeline {
  constructor(state) {
    this.state = state;
    this.canvas = byId("timeline");
    this.raster = new Raster();
    this.sheet = document.createElement("canvas");
    this.view = { t0: 0, t1: 1, y0: 0, y1: 1 };
    this.frames = 0;
    this.listen();
  }

  get top() {
    const { history, run, order } = this.state;
    if (order === "address") return Math.max(run ? run.extent : 0, 1);
    const reserved = run ? run.about.peak_reserved : 0;
    return Math.max(history.peak, reserved, 1) * 1.04;
  }

  everything() {
    this.view = { t0: 0, t1: this.state.history.ops, y0: 0, y1: this.top };
    this.draw();
  }

  around(op) {
    const span = Math.max(this.state.history.ops / 20, 20);
    this.view = { t0: op - span / 2, t1: op + span / 2, y0: 0, y1: this.top };
    this.keepInside();
    this.draw();
  }

  // Zooms by a factor around a point given as shares of width and height.
  zoom(factor, x, y = null) {
    const view = this.view;
    if (y === null) {
      const at = view.t0 + x * (view.t1 - view.t0);
      const span = Math.min(Math.max((view.t1 - view.t0) / factor, 8), this.state.history.ops);
      view.t0 = at - x * span;
      view.t1 = view.t0 + span;
    } else {
      const at = view.y0 + y * (view.y1 - view.y0);
      const span = Math.min(Math.max((view.y1 - view.y0) / factor, 4096), this.top);
      view.y0 = at - y * span;
      view.y1 = view.y0 + span;
    }
    this.keepInside();
    this.draw(true);
  }

  move(x, y = 0) {
    const view = this.view;
    const byOps = x * (view.t1 - view.t0), byBytes = y * (view.y1 - view.y0);
    view.t0 += byOps; view.t1 += byOps; view.y0 += byBytes; view.y1 += byBytes;
    this.keepInside();
    this.draw(true);
  }

  keepInside() {
    const view = this.view, within = (low, high, least, most) => {
      const span = Math.min(high - low, most - least);
      const from = Math.min(Math.max(low, least), most - span);
      return [from, from + span];
    };
    [view.t0, view.t1] = within(view.t0, view.t1, 0, this.state.history.ops);
    [view.y0, view.y1] = within(view.y0, view.y1, 0, this.top);
  }

  // Draws with the next frame; in the midst of a movement perhaps coarsely, and finely when it rests.
  draw(moving = false) {
    this.coarse = moving;
    clearTimeout(this.rest);
    if (moving) this.rest = setTimeout(() => this.draw(), 180);
    this.wanted ||= requestAnimationFrame(() => {
      this.wanted = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const { history, run, order } = this.state;
    if (!history) return;
    const begun = performance.now();
    this.pen = pen(this.canvas);
    // in a movement that does not keep up, a quarter of the pixels
    this.share = this.coarse && this.slow ? 0.5 : 1;
    this.raster.resize(Math.ceil(this.canvas.width * this.share), Math.ceil(this.canvas.height * this.share));
    this.raster.fill(history, run, this.view, order);
    this.paint();
    this.frames++;
    if (this.share === 1) this.slow = performance.now() - begun > FRAME_MS;
    this.state.drawn();
  }

  // Puts colours on what the raster holds, and lines over it.
  paint() {
    if (!this.pen) return;
    const { context, width, height } = this.pen, raster = this.raster;
    if (this.sheet.width !== raster.width || this.sheet.height !== raster.height || !this.image) {
      Object.assign(this.sheet, { width: raster.width, height: raster.height });
      this.image = new ImageData(raster.width, raster.height);
    }
    raster.paint(this.image, this.state.colours, this.state);
    this.sheet.getContext("2d").putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.sheet, 0, 0, width, height);
    this.lines(context, width, height);
  }

  x(op) { return ((op - this.view.t0) / (this.view.t1 - this.view.t0)) * this.pen.width; }
  y(value) { return this.pen.height - ((value - this.view.y0) / (this.view.y1 - this.view.y0)) * this.pen.height; }

  lines(context, width, height) {
    const { state, view } = this, colours = ink();
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.phases(context, height, colours);
    if (state.order === "stack") {
      for (const run of state.history.runs) this.steps(context, run, run === state.run, colours);
      const limit = state.run ? state.run.about.capacity : 0;
      if (limit < view.y1) this.level(context, limit, `device ${bytes(limit)}`, colours.ink, width);
    }
    const step = niceStep((view.y1 - view.y0) / 5, 2);
    for (let value = Math.ceil(view.y0 / step) * step; value < view.y1; value += step) {
      if (value > 0 && this.y(value) > 24) this.label(context, bytes(value), 4, this.y(value), colours);
    }
    const every = Math.max(1, niceStep((view.t1 - view.t0) / (width / 130), 10));
    for (let op = Math.ceil(view.t0 / every) * every; op < view.t1; op += every) {
      this.label(context, op ? `op ${count(op)}` : "op 0", this.x(op) + 3, height - 9, colours);
      context.fillStyle = colours.soft;
      context.fillRect(this.x(op), height - 14, 1, 14);
    }
    const at = this.x(state.op + 0.5);
    if (at >= 0 && at <= width) {
      context.fillStyle = colours.ink;
      context.fillRect(Math.round(at), 0, 1, height);
    }
    this.failures(context, colours);
  }

  label(context, text, x, y, colours) {
    context.lineWidth = 3;
    context.strokeStyle = colours.paper;
    context.strokeText(text, x, y);
    context.fillStyle = colours.ink;
    context.fillText(text, x, y);
  }

  level(context, value, text, colour, width) {
    const y = this.y(value);
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.setLineDash([6, 4]);
    context.strokeRect(-2, y, width + 4, 0);
    context.setLineDash([]);
    this.label(context, text, width - context.measureText(text).width - 6, y + 10, ink());
  }

  // Reserved bytes of a run.
  steps(context, run, chosen, colours) {
    context.strokeStyle = chosen ? colours.ink : colours.soft;
    context.lineWidth = chosen ? 1.6 : 1;
    context.setLineDash(chosen ? [] : [2, 3]);
    context.beginPath();
    const first = Math.max(0, countUpTo(run.reservedOp, this.view.t0) - 1);
    let y = this.y(run.reservedAt(this.view.t0)), last = -1;
    context.moveTo(0, y);
    for (let at = first; at < run.reservedOp.length && run.reservedOp[at] < this.view.t1; at++) {
      const x = Math.max(0, this.x(run.reservedOp[at]));
      if (x - last >= 0.5) context.lineTo(x, y);
      y = this.y(run.reserved[at]);
      context.lineTo(x, y);
      last = x;
    }
    context.lineTo(this.pen.width, y);
    context.stroke();
    context.setLineDash([]);
  }

  phases(context, height, colours) {
    const phases = this.state.history.about.buffers.phases;
    const first = Math.max(0, countUpTo(phases.map((phase) => phase[1]), this.view.t0) - 1);
    let free = 60;
    for (let at = first; at < phases.length && phases[at][1] < this.view.t1; at++) {
      const x = Math.max(this.x(phases[at][1]), 0);
      if (x < free) continue;
      context.fillStyle = colours.soft;
      context.fillRect(x, 0, 1, 16);
      this.label(context, phases[at][0], x + 4, 9, colours);
      free = x + 16 + context.measureText(phases[at][0]).width;
    }
  }

  failures(context, colours) {
    const run = this.state.run;
    if (!run) return;
    let last = -9;
    for (let at = countUpTo(run.refused, this.view.t0 - 1); at < run.refused.length && run.refused[at] < this.view.t1; at++) {
      const x = this.x(run.refused[at] + 0.5);
      if (x - last < 6) continue;
      last = x;
      context.beginPath();
      context.moveTo(x - 5, 22); context.lineTo(x + 5, 22); context.lineTo(x, 31);
      context.fillStyle = CAUSE_COLOURS[7];
      context.strokeStyle = colours.paper;
      context.fill();
      context.stroke();
    }
  }

  // What is under the pointer, in pixels of the canvas.
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const scale = this.pen.scale * this.share;
    return { x, y, what: this.raster.at(x * scale, y * scale), op: this.raster.moment[Math.floor(x * scale)] ?? -1 };
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width, y = 1 - (event.clientY - box.top) / box.height;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return this.move(event.deltaX / box.width);
      const factor = Math.exp(-event.deltaY / 400);
      if (event.shiftKey) this.zoom(factor, x, y); else this.zoom(factor, x);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.clientX, y: event.clientY, far: 0 };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.pen) return;
      if (!this.drag) return this.hover(event);
      const box = canvas.getBoundingClientRect();
      const dx = event.clientX - this.drag.x, dy = event.clientY - this.drag.y;
      this.drag.far += Math.abs(dx) + Math.abs(dy);
      if (this.drag.far > 4) {
        this.move(-dx / box.width, dy / box.height);
        Object.assign(this.drag, { x: event.clientX, y: event.clientY });
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const click = this.drag && this.drag.far <= 4;
      this.drag = null;
      if (click && this.pen) this.click(event);
    });
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => this.state.hover(NOTHING, null));
  }

  hover(event) {
    const { what, op, x, y } = this.at(event);
    if (what !== this.state.hovered) {
      this.state.hovered = what;
      this.paint();
    }
    showTip("tip", this.canvas, x, y, op < 0 ? "" : this.state.tell(what, op));
  }

  click(event) {
    const { what, op } = this.at(event);
    if (op >= 0) this.state.choose(what >= 0 ? what : -1, op);
  }
}

// 1, 2 or 5 times a power of ten; of bytes, powers of two.
function niceStep(least, base) {
  if (base === 2) return 2 ** Math.ceil(Math.log2(least));
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least);
}

function showTip(id, canvas, x, y, text) {
  const tip = byId(id);
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const width = canvas.clientWidth, own = tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(x + 14, width - own))}px`;
  tip.style.top = `${y + 16}px`;
}
