"use strict";
// The columns as arrays of numbers (report/columns.rs says how they are coded), and what is looked up in them at any moment.

async function unpack(text) {
  const raw = atob(text.trim());
  const packed = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) packed[at] = raw.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function column(bytes, about) {
  let at = about.at;
  const next = () => {
    let value = bytes[at++];
    if (value < 128) return value;
    value -= 128;
    for (let scale = 128; ; scale *= 128) {
      const more = bytes[at++];
      if (more < 128) return value + more * scale;
      value += (more - 128) * scale;
    }
  };
  const out = new Float64Array(about.n);
  if (about.coding === "plain") {
    for (let n = 0; n < about.n; n++) out[n] = next();
  } else if (about.coding === "delta") {
    let value = 0;
    for (let n = 0; n < about.n; n++) {
      const zigzag = next();
      value += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
      out[n] = value;
    }
  } else {
    const words = new Float64Array(about.words);
    for (let n = 0; n < about.words; n++) words[n] = next();
    for (let n = 0; n < about.n; n++) out[n] = words[next()];
  }
  return out;
}

// How many of the rising values are at most `limit`.
function countUpTo(values, limit, length = values.length) {
  let low = 0, high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1; else high = middle;
  }
  return low;
}

function sums(counts) {
  const out = new Float64Array(counts.length + 1);
  for (let n = 0; n < counts.length; n++) out[n + 1] = out[n] + counts[n];
  return out;
}

// Buffers of about one size in order of birth, with a tree of the latest ends: finds those that are live at a moment.
class SizeClass {
  constructor(members, birth, death) {
    this.members = Int32Array.from(members);
    this.birth = Float64Array.from(members, (life) => birth[life]);
    this.width = 1;
    while (this.width < members.length) this.width *= 2;
    this.latest = new Float64Array(2 * this.width).fill(-1);
    members.forEach((life, n) => { this.latest[this.width + n] = death[life]; });
    for (let node = this.width - 1; node > 0; node--) {
      this.latest[node] = Math.max(this.latest[2 * node], this.latest[2 * node + 1]);
    }
  }

  // Adds those that are live after an op, and have at least `least` bytes, to a list.
  live(op, found, sizes, least) {
    this.born = countUpTo(this.birth, op);
    if (this.born) this.visit(1, 0, this.width, op, found, sizes, least);
  }

  visit(node, from, width, op, found, sizes, least) {
    while (width > 1) {
      width >>= 1;
      node <<= 1;
      const later = from + width;
      if (later < this.born && this.latest[node + 1] > op) {
        if (this.latest[node] > op) this.visit(node, from, width, op, found, sizes, least);
        node++;
        from = later;
      } else if (this.latest[node] <= op) return;
    }
    if (this.latest[node] <= op) return;
    const life = this.members[from];
    if (sizes[life] >= least) found.add(life);
  }
}

// A list that keeps its room.
class Found {
  constructor() {
    this.list = new Int32Array(4096);
    this.count = 0;
  }

  add(life) {
    if (this.count === this.list.length) {
      const more = new Int32Array(2 * this.count);
      more.set(this.list);
      this.list = more;
    }
    this.list[this.count++] = life;
  }
}

const CHECKPOINT = 64;

class History {
  constructor(about, bytes) {
    this.about = about;
    const read = (name) => column(bytes, about.buffers[name]);
    const b = about.buffers;
    this.ops = Math.max(b.ops, 1);
    this.count = b.kept;
    this.birth = read("birth");
    const length = read("length");
    this.death = this.birth.map((birth, life) => (length[life] ? birth + length[life] : Infinity));
    this.size = read("size");
    this.site = read("site");
    this.told = read("told");
    this.stack = read("stack");
    this.stream = read("stream");
    this.device = read("device");
    this.name = read("name");
    this.sequence = read("sequence");
    this.stackFrom = sums(read("stack_frames"));
    this.stackList = read("stack_list");
    this.events();
    this.classes();
    this.runs = about.runs.map((run) => new Run(run, bytes));
  }

  // Births and ends in order, the sum of live bytes after each, and a tree of the highest.
  events() {
    const ends = [];
    for (let life = 0; life < this.count; life++) {
      if (this.death[life] !== Infinity) ends.push(this.death[life] * 2 ** 20 + life);
    }
    const sorted = Float64Array.from(ends).sort();
    const total = this.count + sorted.length;
    this.eventOp = new Float64Array(total);
    this.eventLife = new Int32Array(total); // -1 - life where it ends
    this.live = new Float64Array(total);
    let born = 0, ended = 0, sum = 0;
    for (let event = 0; event < total; event++) {
      const end = ended < sorted.length ? Math.floor(sorted[ended] / 2 ** 20) : Infinity;
      if (born < this.count && this.birth[born] < end) {
        this.eventOp[event] = this.birth[born];
        this.eventLife[event] = born;
        sum += this.size[born++];
      } else {
        const life = sorted[ended++] % 2 ** 20;
        this.eventOp[event] = end;
        this.eventLife[event] = -1 - life;
        sum -= this.size[life];
      }
      this.live[event] = sum;
    }
    this.width = 1;
    while (this.width < total) this.width *= 2;
    this.highest = new Int32Array(2 * this.width).fill(-1);
    for (let event = 0; event < total; event++) this.highest[this.width + event] = event;
    for (let node = this.width - 1; node > 0; node--) {
      this.highest[node] = this.higher(this.highest[2 * node], this.highest[2 * node + 1]);
    }
    const peak = this.highest[1];
    this.peakOp = peak < 0 ? 0 : this.eventOp[peak];
    this.peak = peak < 0 ? 0 : this.live[peak];
  }

  higher(a, b) {
    if (a < 0 || b < 0) return Math.max(a, b);
    return this.live[b] > this.live[a] ? b : a;
  }

  // The last event up to an op; -1 before the first.
  eventAt(op) {
    return countUpTo(this.eventOp, op) - 1;
  }

  // The op from `from` on and before `to` after which most is live.
  fullest(from, to) {
    let best = this.eventAt(from);
    let low = this.width + best + 1, high = this.width + Math.max(best + 1, countUpTo(this.eventOp, to - 1e-9));
    const first = best;
    for (; low < high; low >>= 1, high >>= 1) {
      if (low & 1) best = this.higher(best, this.highest[low++]);
      if (high & 1) best = this.higher(best, this.highest[--high]);
    }
    return best === first ? from : this.eventOp[best];
  }

  classes() {
    const lists = [];
    for (let life = 0; life < this.count; life++) {
      const number = Math.floor(2 * Math.log2(Math.max(this.size[life], 1)));
      (lists[number] ??= []).push(life);
    }
    this.bySize = [];
    lists.forEach((members, number) => {
      this.bySize.push({ below: 2 ** ((number + 1) / 2), list: new SizeClass(members, this.birth, this.death) });
    });
  }

  // Buffers of at least `least` bytes that are live after an op, in no order.
  liveAt(op, least, found = new Found()) {
    found.count = 0;
    for (const one of this.bySize) {
      if (one.below > least) one.list.live(op, found, this.size, least);
    }
    return found;
  }

  each(op, see) {
    const found = this.liveAt(op, 0);
    for (let at = 0; at < found.count; at++) see(found.list[at]);
  }

  // Sums by group: after every so many events they are kept, from there they are counted.
  setGroups(groupOf, groups) {
    this.groups = groups;
    this.groupOf = groupOf;
    const kept = Math.floor(this.eventOp.length / CHECKPOINT) + 1;
    this.checkpoints = new Float64Array(kept * groups);
    const now = new Float64Array(groups);
    for (let event = 0; event < this.eventOp.length; event++) {
      if (event % CHECKPOINT === 0) this.checkpoints.set(now, (event / CHECKPOINT) * groups);
      this.step(event, now);
    }
    if (this.eventOp.length % CHECKPOINT === 0) this.checkpoints.set(now, (kept - 1) * groups);
  }

  step(event, now) {
    const life = this.eventLife[event];
    if (life >= 0) now[this.groupOf[life]] += this.size[life];
    else now[this.groupOf[-1 - life]] -= this.size[-1 - life];
  }

  groupBytes(op, now) {
    const events = this.eventAt(op) + 1;
    const from = Math.floor(events / CHECKPOINT);
    now.set(this.checkpoints.subarray(from * this.groups, (from + 1) * this.groups));
    for (let event = from * CHECKPOINT; event < events; event++) this.step(event, now);
  }

  category(life) { return this.about.buffers.categories[this.told[life] >> 1]; }
  siteText(life) {
    if (this.sequence[life]) return "(sequence)";
    return this.about.buffers.sites[this.site[life]] || "(no site recorded)";
  }
  frames(life) {
    const stack = this.stack[life];
    if (!stack) return [];
    const list = this.stackList.subarray(this.stackFrom[stack - 1], this.stackFrom[stack]);
    return Array.from(list, (frame) => this.about.buffers.frames[frame]);
  }
  phase(op) {
    const phases = this.about.buffers.phases;
    const at = countUpTo(phases.map((phase) => phase[1]), op) - 1;
    return at < 0 ? "" : phases[at][0];
  }
}

// Of a run: where buffers lie, and its moments.
class Run {
  constructor(about, bytes) {
    this.about = about;
    const read = (name) => column(bytes, about[name]);
    const moment = (name) => column(bytes, about.moments[name]);
    this.place = read("place").map((place) => place - 1);
    this.more = read("more");
    this.stretchBegin = read("stretch_begin");
    this.stretchFrom = sums(read("stretch_size"));
    this.extent = this.stretchFrom[this.stretchFrom.length - 1];
    this.reservedOp = read("reserved_op");
    this.reserved = read("reserved");
    this.allocatedOp = read("allocated_op");
    this.allocated = read("allocated");
    this.refused = read("refused");
    this.op = moment("op");
    this.momentReserved = moment("reserved");
    this.momentRequested = moment("requested");
    this.causeBytes = moment("bytes");
    this.largest = moment("largest");
    this.wanted = moment("wanted");
    this.segmentFrom = sums(moment("segments"));
    for (const name of ["begin", "size", "stream", "pool", "flags", "pin", "live"]) this[name] = moment(name);
    this.pieceFrom = sums(moment("pieces"));
    const gap = moment("gap");
    this.pieceSize = moment("bytes_of");
    this.what = moment("what");
    this.pieceBegin = new Float64Array(gap.length);
    for (let segment = 0; segment < this.begin.length; segment++) {
      let end = this.begin[segment];
      for (let piece = this.pieceFrom[segment]; piece < this.pieceFrom[segment + 1]; piece++) {
        this.pieceBegin[piece] = end + gap[piece];
        end = this.pieceBegin[piece] + this.pieceSize[piece];
      }
    }
  }

  causes(moment) {
    const count = this.about.moments.causes.length;
    return this.causeBytes.subarray(moment * count, (moment + 1) * count);
  }

  // The last moment up to an op; -1 if there is none.
  momentAt(op) { return countUpTo(this.op, op) - 1; }

  reservedAt(op) {
    const at = countUpTo(this.reservedOp, op) - 1;
    return at < 0 ? 0 : this.reserved[at];
  }

  // The real address of a place.
  address(place) {
    const at = Math.max(0, countUpTo(this.stretchFrom, place, this.stretchBegin.length) - 1);
    return this.stretchBegin[at] + place - this.stretchFrom[at];
  }

  // Free bytes that live buffers keep in a segment: of the causes `split remainder` and `pinned segment`.
  kept(segment) {
    let sum = 0;
    for (let piece = this.pieceFrom[segment]; piece < this.pieceFrom[segment + 1]; piece++) {
      if (this.what[piece] >= 6) sum += this.pieceSize[piece];
    }
    return sum;
  }
}
