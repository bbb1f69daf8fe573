"use strict";
// Joint angles on a page: a table of one person, a plot over time, and a panel of both. What they mean: docs/angles.md.
// `person.angles` and `frames` are those of the JSON file (`track`, `time_s`) or of the one-file page (`id`, `time`).
const Di2PoseAngles = (() => {
const STYLE = `
.angles table { width: 100%; border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
.angles caption { text-align: left; padding: 9px 12px 5px; font-size: .82rem; color: var(--soft, inherit); }
.angles th, .angles td { text-align: right; padding: 0 8px; height: 27px; white-space: nowrap; font-weight: 400; border-top: 1px solid var(--line, #8885); }
.angles thead th { font-size: .8rem; color: var(--soft, inherit); border-top: 0; }
.angles th:first-child { text-align: left; padding-left: 10px; }
.angles td:last-child { font-size: inherit; line-height: inherit; white-space: nowrap; text-align: right; }
.angles td[colspan] { text-align: center; }
.angles td small { color: var(--soft, inherit); margin-left: 5px; } .angles td.guessed { font-style: italic; color: var(--soft, inherit); }
.angles tbody button { font: inherit; color: inherit; background: none; border: 0; padding: 0; min-height: 26px; text-align: left; cursor: pointer; text-decoration: underline dotted; }
.angles tr.shown { background: var(--bar, #8882); }
.angles .scroll { overflow-x: auto; } .angles svg { display: block; width: 100%; height: 220px; cursor: crosshair; }
.angles svg text { fill: currentColor; font-size: 11px; opacity: .75; } .angles svg .grid { stroke: currentColor; opacity: .15; }
.angles svg .now { stroke: var(--mark, currentColor); stroke-width: 1.5; }
@media (max-width: 480px) { .angles th, .angles td { padding: 0 4px; } .angles table { font-size: .79rem; } .angles td small { display: block; margin: 0 0 2px; font-size: .72rem; line-height: 1; } }`;
const box = document.createElement("div");
box.innerHTML = "<svg></svg>";
const SVG = box.firstChild.namespaceURI;                        // an address of another site, even if nobody calls it, is none for this page
const MARGIN = { left: 40, right: 12, top: 22, bottom: 22 };
const HEIGHT = 220;
const GUESSED = ["occluded", "out_of_frame", "unknown"];
const timeOf = frame => frame.time_s ?? frame.time ?? 0;
const personIn = (frame, track) => frame.people.find(person => (person.track ?? person.id) === track);
const words = name => name.replaceAll("_", " ");
const number = value => Math.round(value).toString().replace("-", "\u2212");
const colourOf = name => "var(--" + (/^(left|right)_/.exec(name)?.[1] ?? "middle") + ", currentColor)";

function make(parent, tag, attributes = {}, text = "") {
  const element = tag === "svg" || parent.namespaceURI === SVG ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  parent.append(element);
  return element;
}

function dress(element) {
  element.classList.add("angles");
  if (!document.getElementById("di2pose-angles")) make(document.head, "style", { id: "di2pose-angles" }, STYLE);
}

// [words, names]: of both sides left, right and left minus right; of the others one.
function rowsOf(angles) {
  const rows = [];
  for (const name of Object.keys(angles)) {
    const stem = name.replace(/^left_/, "");
    if (stem !== name) rows.push([words(stem), [name, "right_" + stem, stem + "_difference"]]);
    else if (!/^right_|_difference$/.test(name)) rows.push([words(name), [name]]);
  }
  return rows;
}

function fill(cell, angle) {
  cell.replaceChildren();
  const guessed = angle && GUESSED.includes(angle.state);
  cell.className = guessed ? "guessed" : "";
  cell.title = angle ? words(angle.state) : "";
  if (!angle || angle.degrees === null) { cell.textContent = angle ? "\u2013" : ""; return; }
  cell.append(number(angle.degrees) + "\u00b0");
  if (angle.low !== null) make(cell, "small", {}, number(angle.low) + " to " + number(angle.high));
}

// The angles of one person; `onchoose(names)` makes a button of every row. An element is filled again when it is called again.
function table(element, person, onchoose = null, shown = []) {
  const angles = person?.angles ?? {}, rows = rowsOf(angles);
  dress(element);
  element.replaceChildren();
  if (!rows.length) { make(element, "p", {}, "no joint angles here"); return; }
  const grid = make(make(element, "div", { class: "scroll" }), "table");
  make(grid, "caption", {}, "Joint angles in degrees, and where the true one should lie in 9 of 10 cases. Italic: a joint of it was not seen. \u2013: the pose leaves it open.");
  const head = make(make(grid, "thead"), "tr");
  for (const text of ["angle", "left", "right", "left \u2212 right"]) make(head, "th", { scope: "col" }, text);
  const body = make(grid, "tbody");
  for (const [text, names] of rows) {
    const row = make(body, "tr", names.some(name => shown.includes(name)) ? { class: "shown" } : {});
    const title = make(row, "th", { scope: "row" }, onchoose ? "" : text);
    if (onchoose) {
      const button = make(title, "button", { type: "button", "aria-pressed": names.some(name => shown.includes(name)) }, text);
      button.onclick = () => onchoose(names.filter(name => !name.endsWith("_difference")));
    }
    if (names.length === 1) { const cell = make(row, "td", { colspan: 2 }); make(row, "td"); fill(cell, angles[names[0]]); }
    else for (const name of names) fill(make(row, "td"), angles[name]);
  }
}

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9; value += step) found.push(Number(value.toFixed(6)));
  return found;
}

// Some angles of one track over time, each with its 90 % band; dashed where a joint of it was not seen. Returns { mark(k) },
// which moves the line at the present frame; a click sends the event "pick" with the frame's place as `detail`.
function plot(element, frames, track, names) {
  dress(element);
  element.replaceChildren();
  const wide = Math.max(240, element.clientWidth || 640), times = frames.map(timeOf);
  const series = names.map(name => frames.map(frame => {
    const angle = personIn(frame, track)?.angles?.[name];
    return angle && angle.degrees !== null ? angle : null;
  }));
  const values = series.flat().filter(Boolean).flatMap(angle => [angle.degrees, angle.low ?? angle.degrees, angle.high ?? angle.degrees]);
  const svg = make(element, "svg", { viewBox: `0 0 ${wide} ${HEIGHT}`, role: "img", "aria-label": names.map(words).join(", ") + ", degrees over seconds" });
  if (!values.length) { make(svg, "text", { x: wide / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing to plot"); return { mark() {} }; }
  const low = Math.min(...values), high = Math.max(...values), room = Math.max(5, 0.06 * (high - low));
  const from = times[0], until = Math.max(times[times.length - 1], from + 1e-3);
  const x = time => MARGIN.left + (wide - MARGIN.left - MARGIN.right) * (time - from) / (until - from);
  const y = degrees => HEIGHT - MARGIN.bottom - (HEIGHT - MARGIN.top - MARGIN.bottom) * (degrees - low + room) / (high - low + 2 * room);
  for (const value of ticks(low - room, high + room, 5)) {
    make(svg, "line", { class: "grid", x1: MARGIN.left, x2: wide - MARGIN.right, y1: y(value), y2: y(value) });
    make(svg, "text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toString().replace("-", "\u2212") + "\u00b0");
  }
  for (const value of ticks(from, until, wide / 90)) make(svg, "text", { x: x(value), y: HEIGHT - 6, "text-anchor": "middle" }, value + " s");
  let label = MARGIN.left;
  series.forEach((angles, n) => {
    const colour = colourOf(names[n]);
    runs(angles).forEach(run => {
      const ring = [...run.map(k => [k, "high"]), ...run.toReversed().map(k => [k, "low"])];
      const corners = ring.map(([k, end]) => x(times[k]).toFixed(1) + "," + y(angles[k][end] ?? angles[k].degrees).toFixed(1));
      make(svg, "polygon", { points: corners.join(" "), style: "fill:" + colour, opacity: 0.16 });
      if (run.length === 1) {
        const { degrees, low, high } = angles[run[0]], across = x(times[run[0]]);
        make(svg, "circle", { cx: across, cy: y(degrees), r: 2.5, style: "fill:" + colour });
        make(svg, "line", { x1: across, x2: across, y1: y(low ?? degrees), y2: y(high ?? degrees), style: "stroke-width:4;stroke:" + colour, opacity: 0.25 });
      }
      for (const [guessed, part] of stretches(angles, run)) {
        const points = part.map(k => x(times[k]).toFixed(1) + "," + y(angles[k].degrees).toFixed(1)).join(" ");
        make(svg, "polyline", { points, style: "fill:none;stroke-width:2;stroke:" + colour, ...(guessed ? { "stroke-dasharray": "4 4" } : {}) });
      }
    });
    const text = make(svg, "text", { x: label, y: 14, style: "opacity:1;fill:" + colour }, words(names[n]));
    label += 7 * text.textContent.length + 16;
  });
  const now = make(svg, "line", { class: "now", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
  svg.addEventListener("click", event => {
    const box = svg.getBoundingClientRect(), time = from + (until - from) * ((event.clientX - box.left) * wide / box.width - MARGIN.left) / (wide - MARGIN.left - MARGIN.right);
    const off = times.map(other => Math.abs(other - time));
    element.dispatchEvent(new CustomEvent("pick", { detail: off.indexOf(Math.min(...off)) }));
  });
  return { mark(k) { for (const end of ["x1", "x2"]) now.setAttribute(end, x(times[k])); now.setAttribute("visibility", "visible"); } };
}

// Frames in a row that have the angle.
function runs(angles) {
  const found = [];
  angles.forEach((angle, k) => {
    if (!angle) return;
    if (k && angles[k - 1]) found[found.length - 1].push(k); else found.push([k]);
  });
  return found;
}

// [guessed, places] of a run, cut where the joints get out of or into sight; neighbours share a point.
function stretches(angles, run) {
  const found = [];
  for (const k of run) {
    const guessed = GUESSED.includes(angles[k].state), last = found[found.length - 1];
    if (last && last[0] === guessed) last[1].push(k);
    else { if (last) last[1].push(k); found.push([guessed, [k]]); }
  }
  return found;
}

// Table, and for more than one frame a plot of the angle whose row was clicked. show(k, track): frame k of that person.
function panel(element, frames, onpick = () => {}) {
  const chart = frames.length > 1 ? make(element, "div") : null, list = make(element, "div");
  const state = { names: ["left_knee_flexion", "right_knee_flexion"], drawn: "", handle: null, frame: 0, track: null };
  const choose = names => { state.names = names; show(state.frame, state.track); };
  const show = (k, track) => {
    Object.assign(state, { frame: k, track });
    const held = document.activeElement?.closest?.("tbody button"), text = list.contains(held) ? held.textContent : null;
    table(list, personIn(frames[k], track), ...(chart ? [choose, state.names] : []));
    if (text) [...list.querySelectorAll("tbody button")].find(button => button.textContent === text)?.focus();
    if (!chart) return;
    const wanted = [track, chart.clientWidth, ...state.names].join();
    if (wanted !== state.drawn) { state.handle = plot(chart, frames, track, state.names); state.drawn = wanted; }
    state.handle.mark(k);
  };
  chart?.addEventListener("pick", event => onpick(event.detail));
  return { show };
}

return { table, plot, panel };
})();
