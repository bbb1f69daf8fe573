// "Reveal": the tokens recovered step by step, and the pose that they mean.
import { form, json } from "./api.js";
import { live, work } from "./work.js";

const at = id => document.getElementById(id);
const STEPS = 24;                                            // at least: the model's own few would be over at once
const PACE = 4000;                                           // ms for all steps

// host: viewer(), session(), model, personFields() of the chosen person
export function createReveal(host) {
  let steps = null, k = 0, timer = null, cells = [];

  async function run() {
    stop();
    const { file, kind } = host.session(), { pin, ...fields } = host.personFields();
    fields.steps = Math.max(fields.steps ?? 0, Math.min(STEPS, host.model.diffusion_steps));
    const answer = await work("Recovering the tokens", signal => json("v1/reveal", { body: form(file, kind, fields), signal }));
    if (!answer) return;
    steps = answer.steps;
    cells = steps[0].decided.map(() => Object.assign(document.createElement("i"), { className: "cell" }));
    at("tokens").replaceChildren(...cells);
    at("revealStep").max = steps.length - 1;
    at("revealShow").hidden = false;
    at("revealHint").hidden = true;
    at("revealRun").textContent = "Reveal again";
    if (matchMedia("(max-width: 719px)").matches) host.viewer().parts.space.scrollIntoView();
    at("revealPlay").focus({ preventScroll: true });          // the space bar pauses
    show(0);
    play();
  }

  function show(next) {
    k = next;
    const { step, joints_mm, decided } = steps[k], before = k ? steps[k - 1].decided : [], viewer = host.viewer();
    const done = decided.filter(Boolean).length;
    cells.forEach((cell, n) => { cell.className = "cell" + (decided[n] ? before[n] || !k ? " on" : " new" : ""); });
    at("revealStep").value = k;
    at("revealStep").setAttribute("aria-valuetext", `step ${k} of ${steps.length - 1}`);
    at("revealText").textContent = `Step ${k} of ${steps.length - 1} \u00b7 noise level ${step} \u00b7 ${done} of ${decided.length} tokens decided`;
    at("tokens").setAttribute("aria-label", `${done} of ${decided.length} tokens decided`);
    const me = viewer.chosen();
    if (me && joints_mm) viewer.setPreview({ joints: joints_mm, px: joints_mm.map(p => viewer.onPhoto(p, me.root)), bare: true });
  }

  function play() {
    if (timer) return halt();
    if (k === steps.length - 1) k = -1;
    at("revealPlay").textContent = "Pause";
    const next = () => { if (k < steps.length - 1) show(k + 1); if (k === steps.length - 1) halt(); };
    timer = setInterval(next, Math.max(60, PACE / steps.length));
  }
  function halt() {
    clearInterval(timer); timer = null;
    at("revealPlay").textContent = "Play";
    live(at("revealText").textContent);
  }
  // Another picture, person or estimate: the steps are of the old one.
  function stop() {
    if (!steps) return;
    halt();
    steps = null;
    at("revealShow").hidden = true;
    at("revealRun").textContent = "Reveal";
    host.viewer().setPreview(null);
  }

  at("revealRun").onclick = run;
  at("revealPlay").onclick = play;
  at("revealDone").onclick = stop;
  at("revealStep").oninput = event => { if (timer) halt(); show(Number(event.target.value)); };
  return { stop, playing: () => steps !== null, play };
}
