// Colours, numbers in words, and elements. Texts of a recording reach the page through `make` and `textContent` only, which make no markup of them.

// Okabe and Ito's colours, which people with any kind of colour blindness can tell apart.
const GROUP_COLOURS = ["#0072b2", "#e69f00", "#cc79a7", "#009e73", "#56b4e9", "#d55e00", "#8d8d8d", "#b8a800", "#7a5195", "#4d6f2d", "#9c6b4f"];
const REST_COLOUR = "#8d8d8d";
// In the order of the causes: light to strong, what is stuck strongest.
const CAUSE_COLOURS = ["#c9d9a7", "#8ea04a", "#7fb2e5", "#f0a97d", "#e7a6c6", "#c8ccd0", "#ecd671", "#c22f2f", "#555b61"];

const dark = () => {
  const chosen = document.documentElement.classList;
  if (printing || chosen.contains("light")) return false;
  return chosen.contains("dark") || matchMedia("(prefers-color-scheme: dark)").matches;
};
let printing = false;

function ink() {
  return dark()
    ? { paper: "#111315", ink: "#e6e8ea", soft: "#a2abb4", line: "#343a41", small: "#4a525a" }
    : { paper: "#f3f4f5", ink: "#1c1f23", soft: "#5a626b", line: "#cfd4d9", small: "#b4bac0" };
}

function parts(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

// A pixel of a colour, mixed with another by a share.
function pixel(colour, other, share = 0) {
  const [r, g, b] = parts(colour), [r2, g2, b2] = parts(other ?? colour);
  const mix = (one, two) => Math.round(one + (two - one) * share);
  return (255 << 24 | mix(b, b2) << 16 | mix(g, g2) << 8 | mix(r, r2)) >>> 0;
}

function bytes(value) {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(value) >= unit) return `${trim((value / unit).toFixed(2))} ${name}`;
  }
  return `${value} B`;
}
const trim = (text) => text.replace(/\.?0+$/, "");
const count = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u2009");
const hex = (value) => `0x${value.toString(16)}`;
const share = (part, all) => (all > 0 ? `${((100 * part) / all).toFixed(1)} %` : "-");

// An element with a text or with children.
function make(tag, content, about = {}) {
  const element = document.createElement(tag);
  if (Array.isArray(content)) element.append(...content.filter((one) => one != null));
  else if (content != null) element.textContent = content;
  for (const [name, value] of Object.entries(about)) {
    if (name === "click") element.addEventListener("click", value);
    else element[name] = value;
  }
  return element;
}

const byId = (id) => document.getElementById(id);

// A table; columns whose title ends in # are numbers. A row may have what a click on it does.
function table(titles, rows) {
  const number = titles.map((title) => title.endsWith("#"));
  const cell = (tag, content, at) => make(tag, content, number[at] ? { className: "n" } : {});
  const head = titles.map((title, at) => cell("th", title.replace("#", ""), at));
  const body = rows.map(({ cells, click, shown }) => {
    const row = make("tr", cells.map((content, at) => cell("td", content, at)));
    if (click) {
      row.className = "link";
      row.tabIndex = 0;
      row.addEventListener("click", click);
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") click(event); });
    }
    if (shown) row.classList.add("shown");
    return row;
  });
  return make("table", [make("thead", [make("tr", head)]), make("tbody", body)]);
}

function swatch(colour) {
  const canvas = make("canvas", null, { width: 12, height: 12 });
  const pen = canvas.getContext("2d");
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 12, 12);
  return canvas;
}

function legend(place, entries) {
  byId(place).replaceChildren(...entries.map(([name, colour]) => make("span", [swatch(colour), document.createTextNode(name)])));
}

// A pen that counts in CSS pixels, on a canvas that has the screen's own.
function pen(canvas) {
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  const box = canvas.getBoundingClientRect();
  const width = Math.max(1, Math.round(box.width * scale)), height = Math.max(1, Math.round(box.height * scale));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return { context, scale, width: width / scale, height: height / scale };
}
