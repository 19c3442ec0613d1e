// What is at each pixel of the timeline. Columns are drawn one after the other: for each the fullest moment of its ops is looked up, and the
// buffers that are at least a part of a pixel high are put in; smaller ones are one band for each group.

const NOTHING = -1;
const SMALL = -2; // buffers too small to be drawn by address
const REST = -10; // minus the group: its buffers that are too small to be drawn alone
const CAUSE = -100; // minus the cause

class Raster {
  resize(width, height) {
    if (this.width === width && this.height === height) return;
    Object.assign(this, { width, height });
    this.what = new Int32Array(width * height); // column by column, from the top
    this.moment = new Float64Array(width); // the op that a column shows
  }

  // `view`: ops from t0 to t1, bytes from y0 (below) to y1.
  fill(history, run, view, order) {
    this.found = new Found();
    this.sorted = new Float64Array(4096);
    this.totals = new Float64Array(history.groups);
    this.scale = this.height / (view.y1 - view.y0);
    this.background = -2;
    const step = (view.t1 - view.t0) / this.width;
    for (let x = 0; x < this.width; x++) {
      const from = Math.floor(view.t0 + x * step), to = Math.max(from + 1, Math.floor(view.t0 + (x + 1) * step));
      this.moment[x] = -1;
      if (from < 0 || from >= history.ops) {
        this.what.fill(NOTHING, x * this.height, (x + 1) * this.height);
        continue;
      }
      const same = x > 0 && to - from === 1 && this.moment[x - 1] === from;
      this.moment[x] = history.fullest(from, to);
      if (same) this.what.copyWithin(x * this.height, (x - 1) * this.height, x * this.height);
      else if (order === "stack") this.stack(history, view, x);
      else this.byAddress(history, run, view, x);
    }
  }

  // Bytes from `from` to `to` of a column are `what`.
  band(x, view, from, to, what) {
    const bottom = this.height - Math.round((from - view.y0) * this.scale);
    const top = this.height - Math.round((to - view.y0) * this.scale);
    if (top >= bottom || bottom <= 0 || top >= this.height) return;
    this.what.fill(what, x * this.height + Math.max(top, 0), x * this.height + Math.min(bottom, this.height));
  }

  stack(history, view, x) {
    const op = this.moment[x];
    this.what.fill(NOTHING, x * this.height, (x + 1) * this.height);
    history.groupBytes(op, this.totals);
    const found = history.liveAt(op, 0.6 / this.scale, this.found), count = found.count;
    if (count > this.sorted.length) this.sorted = new Float64Array(2 * count);
    for (let n = 0; n < count; n++) {
      const life = found.list[n];
      this.sorted[n] = history.groupOf[life] * 2 ** 32 + life;
    }
    const order = this.sorted.subarray(0, count).sort();
    let at = 0, begin = 0;
    for (let group = 0; group < history.groups; group++) {
      let y = begin;
      for (; at < count && order[at] < (group + 1) * 2 ** 32; at++) {
        const life = order[at] - group * 2 ** 32;
        this.band(x, view, y, y + history.size[life], life);
        y += history.size[life];
      }
      begin += this.totals[group];
      this.band(x, view, y, begin, REST - group);
    }
  }

  byAddress(history, run, view, x) {
    const op = this.moment[x];
    const moment = run ? run.momentAt(op) : -1;
    if (x > 0 && moment === this.background) {
      this.what.set(this.behind, x * this.height);
    } else {
      this.what.fill(NOTHING, x * this.height, (x + 1) * this.height);
      if (moment >= 0) this.segments(run, view, x, moment);
      this.background = moment;
      this.behind = this.what.slice(x * this.height, (x + 1) * this.height);
    }
    if (!run) return;
    const found = history.liveAt(op, 0.5 / this.scale, this.found);
    for (let n = 0; n < found.count; n++) {
      const life = found.list[n], place = run.place[life];
      if (place >= 0) this.band(x, view, place, place + history.size[life], life);
    }
  }

  segments(run, view, x, moment) {
    for (let segment = run.segmentFrom[moment]; segment < run.segmentFrom[moment + 1]; segment++) {
      this.band(x, view, run.begin[segment], run.begin[segment] + run.size[segment], SMALL);
      for (let piece = run.pieceFrom[segment]; piece < run.pieceFrom[segment + 1]; piece++) {
        const begin = run.pieceBegin[piece];
        this.band(x, view, begin, begin + run.pieceSize[piece], CAUSE - run.what[piece]);
      }
    }
  }

  // Pixels of what is there.
  paint(image, colours, marked) {
    const pixels = new Uint32Array(image.data.buffer);
    const { width, height, what } = this;
    for (let y = 0, to = 0; y < height; y++) {
      for (let x = 0, from = y; x < width; x++, from += height, to++) {
        const one = what[from];
        if (one >= 0) {
          pixels[to] = one === marked.chosen ? colours.chosen : one === marked.hovered ? colours.hovered : colours.life[one];
        } else {
          pixels[to] = colours.other[-one];
        }
      }
    }
  }

  at(x, y) {
    x = Math.floor(x); y = Math.floor(y);
    if (x < 0 || y < 0 || x >= this.width || y >= this.height) return NOTHING;
    return this.what[x * this.height + y];
  }
}
