// What the page says in words and tables.

const FOUND_SHOWN = 50;
const SHARES_SHOWN = 10;
const HELPS_SHOWN = 8;

function showAnswer(about) {
  const list = make("dl", null);
  about.answer.forEach((said, n) => {
    const text = make("dd", [make("span", said.text)], n === 0 ? { className: "first" } : {});
    if (said.paste) {
      const copy = make("button", "copy", { type: "button", click: () => copyText(said.paste, copy) });
      text.append(make("br"), make("span", [make("code", said.paste), copy], { className: "paste" }));
    }
    list.append(make("dt", said.about), text);
  });
  for (const warning of about.warnings) list.append(make("dt", "remark"), make("dd", warning));
  const { all, kept } = about.buffers;
  if (kept < all) {
    list.append(make("dt", "left out"), make("dd", `${count(all)} buffers are too many for a page: the ${count(kept)} with most bytes and longest lives are drawn, and sums that the page counts are of these.`));
  }
  byId("answer").replaceChildren(list);
  byId("answer").className = about.first_run > 0 ? "" : about.what_if.some((line) => line.verdict === "in force" && line.failed) ? "failed" : "fits";
}

// A page that lies on a disk may not be allowed to use the clipboard: then the text is selected.
async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    button.before(make("code", text));
    getSelection().selectAllChildren(button.previousSibling);
    button.textContent = "copy the selected text";
  }
}

// Settings in force first, then what helps, other allocators, and the rest where it is asked for.
function showWhatIf(state) {
  const about = state.history ? state.history.about : state.about;
  const rank = (line) => (line.verdict === "in force" ? 0 : line.run !== null ? 1 : line.verdict === "helps" ? 2 : line.own ? 4 : 3);
  const lines = about.what_if.map((line, at) => [rank(line), at, line]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let helping = 0;
  const first = [], rest = [];
  for (const [order, , line] of lines) (order === 4 || (order === 2 && ++helping > HELPS_SHOWN) ? rest : first).push(whatIfRow(state, line));
  const titles = ["setting or allocator", "verdict", "failed#", "peak reserved#", "against now#", "driver calls#", "stalls ms#", ""];
  const parts = [make("div", [table(titles, first)], { className: "wide" })];
  if (rest.length) {
    parts.push(make("details", [make("summary", `${count(rest.length)} more settings: what helps less, costs, or does nothing here`), make("div", [table(titles, rest)], { className: "wide" })], { open: byId("whatif").querySelector("details")?.open ?? false }));
  }
  byId("whatif").replaceChildren(...parts);
}

function whatIfRow(state, line) {
  const signed = (value) => (value === 0 ? "0" : `${value > 0 ? "+" : "\u2212"}${bytes(Math.abs(value))}`);
  const shown = line.run !== null;
  const name = [make("span", line.setting)];
  if (line.paste && line.verdict === "helps") {
    const copy = make("button", "copy", { type: "button", title: line.paste, click: (event) => { event.stopPropagation(); copyText(line.paste, copy); } });
    name.push(document.createTextNode(" "), copy);
  }
  return {
    cells: [name, line.verdict, count(line.failed), bytes(line.peak_reserved), signed(line.saved), count(line.calls), (line.stall_ns / 1e6).toFixed(2), shown ? [make("span", "show", { className: "show" })] : ""],
    click: shown ? () => state.setRun(line.run) : null,
    shown: shown && state.run && state.history.runs[line.run] === state.run,
  };
}

function showLife(state) {
  const { history, run, chosen } = state;
  if (chosen < 0) {
    byId("life-body").replaceChildren(make("p", "None. Click a buffer in the timeline, in the map, or in a list.", { className: "soft" }));
    return;
  }
  const stated = history.told[chosen] % 2 === 1, death = history.death[chosen];
  const facts = [
    ["asked for", `${bytes(history.size[chosen])} (${count(history.size[chosen])} B)`],
    ["site", history.siteText(chosen)],
    ["category", `${history.category(chosen)}${stated ? ", the recording says so" : ", told by its times, may be wrong"}`],
    ["lives", death === Infinity ? `from op ${count(history.birth[chosen])}, not freed in the recording` : `from op ${count(history.birth[chosen])} to op ${count(death)} (${count(death - history.birth[chosen])} ops)`],
    ["phase", history.phase(history.birth[chosen])],
    ["stream, device", `${history.stream[chosen]}, ${history.device[chosen]}`],
    ["name in the recording", history.name[chosen] > 2 ** 24 ? hex(history.name[chosen]) : count(history.name[chosen])],
  ];
  if (run && run.place[chosen] >= 0) {
    facts.push(["placed by this run", `at ${hex(run.address(run.place[chosen]))}, a block of ${bytes(history.size[chosen] + run.more[chosen])}`]);
    const kept = pinnedBy(state, chosen);
    if (kept.segments) facts.push(["keeps", `${bytes(kept.bytes)} free in ${count(kept.segments)} segments at the shown moment: it lives longest there`]);
  } else if (run && !history.sequence[chosen]) {
    facts.push(["placed by this run", "nowhere: the request was refused, or has no bytes"]);
  }
  const rows = facts.filter(([, value]) => value !== "").map((cells) => ({ cells }));
  const body = [table(["", ""], rows)];
  const around = make("button", "show its life", { type: "button", click: () => state.showLife(chosen) });
  body.push(make("p", [around]));
  const frames = history.frames(chosen);
  if (frames.length) {
    body.push(make("h3", "stack, innermost first"), make("ol", frames.map((frame) => make("li", frame)), { className: "stack" }));
  }
  byId("life-body").replaceChildren(...body);
}

function pinnedBy({ run, moment }, life) {
  const found = { segments: 0, bytes: 0 };
  if (moment < 0) return found;
  for (let segment = run.segmentFrom[moment]; segment < run.segmentFrom[moment + 1]; segment++) {
    const kept = run.pin[segment] - 1 === life ? run.kept(segment) : 0;
    if (kept) { found.segments++; found.bytes += kept; }
  }
  return found;
}

// What holds the bytes at the chosen op: by category, by site, and the largest buffers.
function showMoment(state) {
  const { history, op } = state;
  const live = [];
  history.each(op, (life) => live.push(life));
  const all = live.reduce((sum, life) => sum + history.size[life], 0);
  const shares = (name) => {
    const sums = new Map();
    for (const life of live) {
      const key = name(life), one = sums.get(key) ?? [0, 0];
      one[0] += history.size[life];
      one[1]++;
      sums.set(key, one);
    }
    const sorted = [...sums].sort((a, b) => b[1][0] - a[1][0]);
    return sorted.slice(0, SHARES_SHOWN).map(([key, [sum, buffers]]) => ({
      cells: [key, count(buffers), bytes(sum), share(sum, all)],
      click: () => state.setQuery(key.startsWith("(") ? "" : `"${key}"`),
    }));
  };
  const largest = live.sort((a, b) => history.size[b] - history.size[a] || a - b).slice(0, SHARES_SHOWN);
  const phase = history.phase(op);
  byId("moment-body").replaceChildren(
    make("p", `After op ${count(op)}${phase ? `, in ${phase}` : ""}: ${count(live.length)} buffers, ${bytes(all)}${state.run ? `; ${bytes(state.run.reservedAt(op))} reserved` : ""}.`),
    table(["category", "buffers#", "bytes#", "share#"], shares((life) => history.category(life))),
    table(["site", "buffers#", "bytes#", "share#"], shares((life) => history.siteText(life))),
    table(["largest buffers", "bytes#"], largest.map((life) => ({ cells: [history.siteText(life), bytes(history.size[life])], click: () => state.choose(life, op) }))),
  );
}

function showMapWords(state) {
  const { run, moment } = state;
  byId("map-parts").hidden = !run || !run.op.length;
  byId("causes-parts").hidden = !run || run.op.length < 2;
  if (!run || !run.op.length) {
    byId("map-words").textContent = "This strategy does not tell what lies where, or its state does not add up: there is no map of it.";
    byId("kept").replaceChildren();
    return;
  }
  const causes = [...run.causes(moment)].map((value, at) => [value, run.about.moments.causes[at]]);
  const named = causes.filter(([value]) => value > 0).sort((a, b) => b[0] - a[0]).map(([value, name]) => `${name} ${bytes(value)}`);
  const wanted = run.wanted[moment] ? ` Free memory is judged by the next request that made the run grow or fail, of ${bytes(run.wanted[moment])}; the largest free piece is ${bytes(run.largest[moment])}.` : "";
  const segments = run.segmentFrom[moment + 1] - run.segmentFrom[moment];
  byId("map-words").textContent = `After op ${count(run.op[moment])}: ${bytes(run.momentReserved[moment])} reserved in ${count(segments)} segments, ${bytes(run.momentRequested[moment])} asked for. Between them: ${named.join(", ") || "nothing"}.${wanted}`;
  const list = [];
  for (let segment = run.segmentFrom[moment]; segment < run.segmentFrom[moment + 1]; segment++) {
    const kept = run.kept(segment);
    if (kept) list.push([kept, segment]);
  }
  list.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const rows = list.slice(0, SHARES_SHOWN).map(([kept, segment]) => {
    const pin = run.pin[segment] - 1;
    return {
      cells: [hex(run.address(run.begin[segment])), bytes(run.size[segment]), bytes(kept), count(run.live[segment]), pin < 0 ? "" : `${state.history.siteText(pin)} (${bytes(state.history.size[pin])})`],
      click: pin < 0 ? null : () => state.choose(pin, state.op),
    };
  });
  byId("kept").replaceChildren(...(rows.length ? [make("h3", "Segments with most free bytes that live buffers keep"), make("div", [table(["segment", "size#", "kept free#", "live#", "lives longest in it"], rows)], { className: "wide" })] : []));
}

// Which buffers a query means; null without one. Words stand for parts of sites, frames, categories and addresses, > and < for sizes.
function search(history, query) {
  const words = (query.toLowerCase().match(/"[^"]*"|\S+/g) ?? []).map((word) => word.replaceAll('"', "")).filter(Boolean);
  if (!words.length) return null;
  const found = new Uint8Array(history.count).fill(1);
  const buffers = history.about.buffers;
  for (const word of words) {
    const limit = /^([<>])(\d+(?:\.\d+)?)([kmgt]?)(?:ib|b)?$/.exec(word);
    if (limit) {
      const value = limit[2] * 1024 ** " kmgt".indexOf(limit[3] || " ");
      for (let life = 0; life < history.count; life++) {
        if (limit[1] === ">" ? history.size[life] <= value : history.size[life] >= value) found[life] = 0;
      }
      continue;
    }
    const has = (text) => text.toLowerCase().includes(word);
    const sites = buffers.sites.map(has), categories = buffers.categories.map(has), frames = buffers.frames.map(has);
    const stacks = [false];
    for (let stack = 1; stack < history.stackFrom.length; stack++) {
      stacks.push(history.stackList.subarray(history.stackFrom[stack - 1], history.stackFrom[stack]).some((frame) => frames[frame]));
    }
    const address = word.startsWith("0x") && parseInt(word, 16);
    for (let life = 0; life < history.count; life++) {
      if (!found[life]) continue;
      const named = sites[history.site[life]] || categories[history.told[life] >> 1] || stacks[history.stack[life]] || (address && history.name[life] === address);
      if (!named) found[life] = 0;
    }
  }
  return found;
}

function showFound(state) {
  const box = byId("found");
  box.hidden = !state.matches;
  if (!state.matches) return;
  const { history, op } = state;
  const list = [];
  let live = 0;
  for (let life = 0; life < history.count; life++) {
    if (!state.matches[life]) continue;
    list.push(life);
    if (history.birth[life] <= op && op < history.death[life]) live += history.size[life];
  }
  list.sort((a, b) => history.size[b] - history.size[a] || a - b);
  const rows = list.slice(0, FOUND_SHOWN).map((life) => ({
    cells: [history.siteText(life), history.category(life), bytes(history.size[life]), count(history.birth[life])],
    click: () => state.choose(life, history.birth[life]),
  }));
  const words = `${count(list.length)} buffers match; those live after op ${count(op)} have ${bytes(live)}.${list.length > FOUND_SHOWN ? ` The largest ${FOUND_SHOWN}:` : ""}`;
  box.replaceChildren(make("p", words), ...(rows.length ? [table(["site", "category", "bytes#", "from op#"], rows)] : []));
}
