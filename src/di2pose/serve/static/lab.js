// The occlusion lab: a patch that the user slides over the photo, and the map of where a patch hurts most.
import { form, json } from "./api.js";
import { apart } from "./data.js";
import { outline, patch as drawPatch } from "./tools.js";
import { live, work } from "./work.js";

const at = id => document.getElementById(id);
const RAMP = [[255, 214, 102], [245, 124, 40], [201, 24, 74]];

// host: viewer(), session(), tools(), personFields(), person() of the server's JSON, showPerson(person or null)
export function createLab(host) {
  let heat = null, covered = null;
  const share = () => Number(at("patch").value) / 100;
  const patchSide = () => share() * Math.min(...host.viewer().place().size);
  const whole = mm => Math.round(mm) + " mm";

  async function cover(rect) {
    const { file, kind } = host.session(), fields = { ...host.personFields(), at: rect };
    const answer = await work("Looking past the patch", signal => json("v1/lab", { body: form(file, kind, fields), signal }));
    const found = answer?.frames[0].people[0];
    if (!answer) return;
    covered = rect;
    at("patchOff").hidden = at("patchText").hidden = false;
    const text = found ? `With the patch there, joints move by ${whole(apart(found, host.person()))} on average.` : "With the patch there, nobody is found.";
    at("patchText").textContent = text;
    live(text);
    if (found) host.showPerson(found);
  }
  function uncover() {
    if (!covered) return;
    covered = null;
    at("patchOff").hidden = at("patchText").hidden = true;
    if (host.tools().state.tool === "patch") host.tools().use("patch");
    host.showPerson(null);
  }

  async function map() {
    const { file, kind } = host.session(), side = Number(at("grid").value), { pin, ...asked } = host.personFields();
    const fields = { ...asked, patch: share(), grid: side };
    const answer = await work(`Trying ${side * side} places`, signal => json("v1/lab", { body: form(file, kind, fields), signal }));
    if (!answer) return;
    const values = answer.grid.flat();
    heat = { worst: answer.worst, low: Math.min(...values), high: Math.max(...values) };
    Object.assign(heat, { picture: mapPicture(answer.grid), reach: reach(answer.boxes, answer.grid.length) });
    at("heatShow").hidden = at("heatOff").hidden = false;
    at("heatText").textContent = `The worst place moves the joints by ${whole(answer.worst_mm)} on average; it is framed on the photo.`;
    at("rampLow").textContent = whole(heat.low);
    at("rampHigh").textContent = whole(heat.high);
    live(at("heatText").textContent);
    if (matchMedia("(max-width: 719px)").matches) host.viewer().parts.photo.scrollIntoView();
    host.viewer().draw();
  }
  function unmap() {
    if (!heat) return;
    heat = null;
    at("heatShow").hidden = at("heatOff").hidden = true;
    host.viewer().draw();
  }
  // Another picture, person or estimate.
  function stop() { covered = null; at("patchOff").hidden = at("patchText").hidden = true; unmap(); }

  function layer(pen, place, put) {
    if (heat) {
      pen.imageSmoothingEnabled = true;
      pen.drawImage(heat.picture, ...put(heat.reach));
      outline(pen, put(heat.worst), "#ff62ad", [], 3);
    }
    if (covered && host.tools().state.tool !== "patch") drawPatch(pen, put(covered));
  }
  // A pixel a place, which is drawn large and smooth.
  function mapPicture(grid) {
    const canvas = Object.assign(document.createElement("canvas"), { width: grid[0].length, height: grid.length }), pen = canvas.getContext("2d");
    grid.forEach((row, y) => row.forEach((value, x) => {
      pen.fillStyle = colour((value - heat.low) / Math.max(1e-6, heat.high - heat.low));
      pen.fillRect(x, y, 1, 1);
    }));
    return canvas;
  }
  // From the first place's middle to the last one's, and half a step beyond.
  function reach(boxes, n) {
    const first = boxes[0], last = boxes[boxes.length - 1];
    const [x0, y0, x1, y1] = [first, last].flatMap(box => [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2]);
    const [dx, dy] = [x1 - x0 || first[2] - first[0], y1 - y0 || first[3] - first[1]].map(way => way / (n - 1) / 2);
    return [x0 - dx, y0 - dy, x1 + dx, y1 + dy];
  }
  function colour(t) {
    const where = Math.min(0.999, t) * (RAMP.length - 1), k = Math.floor(where);
    const rgb = RAMP[k].map((v, c) => Math.round(v + (where - k) * (RAMP[k + 1][c] - v)));
    return `rgb(${rgb.join(" ")} / ${0.15 + 0.55 * t})`;
  }

  const tell = () => { at("patchOut").textContent = at("patch").value + " % of the shorter side"; at("gridOut").textContent = at("grid").value; };
  at("patch").oninput = tell;
  at("grid").oninput = tell;
  at("patchTool").onclick = () => host.tools().use("patch");
  at("patchOff").onclick = uncover;
  at("heatRun").onclick = map;
  at("heatOff").onclick = unmap;
  tell();
  return { cover, uncover, stop, layer, patchSide };
}
