// From the server's JSON (docs/files.md) to what the viewer shows.

const STATES = ["pinned", "visible", "occluded", "out_of_frame", "unknown"];
const count = (n, one, many) => n === 1 ? "1 " + one : n + " " + many;

export const number = (person, place) => person.track ?? place;

export function payload(record) {
  const names = record.skeleton.joints;
  const frames = record.frames.map((frame, k) => ({
    index: frame.frame_index ?? k,
    time: frame.time_s ?? (record.fps ? k / record.fps : 0),
    camera: frame.camera,
    people: frame.people.map((person, place) => shown(person, number(person, place), names)),
  }));
  const people = [...new Set(frames.flatMap(frame => frame.people.map(person => person.id)))].sort((a, b) => a - b);
  return { size: record.frames[0].size_px, rate: record.fps ?? 1, joints: names, parents: record.skeleton.parents, people, frames };
}

function shown(person, id, names) {
  const joints = names.map(name => person.joints[name]);
  return {
    id, main: person.main, root: person.root_mm, joints: joints.map(j => j.xyz_mm), r90: joints.map(j => j.r90_mm ?? 0),
    state: joints.map(j => STATES.indexOf(j.state)), px: joints.map(j => j.uv_px), samples: person.samples_mm, angles: person.angles,
  };
}

// What is shown before there is an answer: the picture alone.
export const empty = size => (
  { size, rate: 1, joints: [], parents: [], people: [], frames: [{ index: 0, time: 0, people: [] }], nobody: "looking at it \u2026" });

export function about(record) {
  const people = payload(record).people.length, video = record.frames.length > 1 ? [count(record.frames.length, "frame", "frames")] : [];
  const parts = [people ? count(people, "person", "people") : "nobody found", ...video, count(record.hypotheses, "hypothesis", "hypotheses")];
  parts.push(count(record.steps, "step", "steps"), "seed " + record.seed);
  const camera = record.frames[0].camera_source;
  return [...parts, ...camera ? ["camera: " + camera] : []].join(" \u00b7 ");
}

export function overlap(a, b) {
  const w = Math.min(a[2], b[2]) - Math.max(a[0], b[0]), h = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  if (w <= 0 || h <= 0) return 0;
  const area = box => (box[2] - box[0]) * (box[3] - box[1]);
  return w * h / (area(a) + area(b) - w * h);
}

// The place of whoever stands where this box is; -1 if nobody does.
export function whose(box, people) {
  const shares = people.map(person => overlap(box, person.box_px)), best = Math.max(0.3, ...shares);
  return shares.indexOf(best);
}

// Mean distance between two poses of a person, mm.
export function apart(one, other) {
  const names = Object.keys(one.joints);
  const ways = names.map(name => Math.hypot(...one.joints[name].xyz_mm.map((v, axis) => v - other.joints[name].xyz_mm[axis])));
  return ways.reduce((sum, way) => sum + way, 0) / names.length;
}
