// Joints that the user holds: by a click, a drag (in the viewer) or numbers.
import { number } from "./data.js";
import { fail } from "./work.js";

const at = id => document.getElementById(id);
const AXES = ["pinX", "pinY", "pinZ"];

// host: viewer(), session(), model, person(), changed() when a pin is another one
export function createPins(host) {
  const round = xyz => xyz.map(value => Math.round(10 * value) / 10);
  const words = joint => joint.replaceAll("_", " ");

  // xyz null: a click, which holds the joint where it is, or lets it go.
  function pin(id, joint, xyz) {
    const { pins } = host.session(), held = pins.get(id) ?? {};
    if (!xyz && held[joint]) return unpin(id, joint);
    const now = host.person().joints[joint].xyz_mm;
    pins.set(id, { ...held, [joint]: round(xyz ?? now) });
    host.changed();
  }
  function unpin(id, joint) {
    const { pins } = host.session(), { [joint]: _, ...rest } = pins.get(id);
    if (Object.keys(rest).length) pins.set(id, rest); else pins.delete(id);
    host.changed();
  }

  // The answer with one person's pins. Where the server refuses them: with those that it accepted before, else without
  // any (`pin` and `answer` are then missing); `refusal` says which pins were taken back, and why.
  async function ask(send, wanted, accepted) {
    try {
      return { pin: wanted, answer: await send(wanted) };
    } catch (error) {
      if (error.status !== 400 && error.status !== 422) throw error;
      const older = accepted && JSON.stringify(accepted) !== JSON.stringify(wanted) ? await ask(send, accepted) : {};
      const joints = Object.keys(wanted).filter(joint => String(older.pin?.[joint]) !== String(wanted[joint]));
      return { ...older, refusal: `Pin taken back (${joints.map(words).join(", ")}): ${error.message}.` };
    }
  }

  function chips(makeChip) {
    const id = host.viewer()?.state.person, held = host.session().pins.get(id) ?? {};
    at("pinChips").replaceChildren(...Object.keys(held).map(joint => makeChip(words(joint), () => unpin(id, joint))));
  }

  // The form follows the joint that is marked in the views.
  function chosen() {
    const joint = host.model.joints[host.viewer().state.joint];
    if (joint && joint !== "pelvis") at("pinJoint").value = joint;
    fill();
  }
  function fill() {
    const place = host.person()?.joints[at("pinJoint").value]?.xyz_mm;
    AXES.forEach((id, axis) => { at(id).value = place ? Math.round(place[axis]) : ""; });
  }

  // The answer with the pins as they will be: for whoever resamples by hand.
  function pending(record) {
    const people = record.frames[0].people.map((person, place) => {
      const held = host.session().pins.get(number(person, place));
      if (!held) return person;
      const joints = Object.fromEntries(Object.entries(held).map(([joint, xyz_mm]) => [joint, {
        ...person.joints[joint], xyz_mm, state: "pinned", uv_px: host.viewer().onPhoto(xyz_mm, person.root_mm) ?? person.joints[joint].uv_px,
      }]));
      return { ...person, joints: { ...person.joints, ...joints } };
    });
    return { ...record, frames: [{ ...record.frames[0], people }] };
  }

  at("pinJoint").append(...host.model.joints.filter(joint => joint !== "pelvis").map(joint => new Option(words(joint), joint)));
  at("pinJoint").onchange = fill;
  at("pinForm").onsubmit = event => {
    event.preventDefault();
    if (!host.person()) return fail("Choose a person first.");
    pin(host.viewer().state.person, at("pinJoint").value, AXES.map(id => Number(at(id).value)));
  };
  return { pin, ask, chips, chosen, pending };
}
