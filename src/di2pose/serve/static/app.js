// The page of `di2pose serve`: holds the picture, what is asked about it and the answer, and puts the parts together.
import { form, job, json, onToken } from "./api.js";
import { about, empty, number, payload, whose } from "./data.js";
import { createIntake } from "./intake.js";
import { createLab } from "./lab.js";
import { jpeg, openCamera, openMedia, refused } from "./media.js";
import { createPins } from "./pins.js";
import { createReveal } from "./reveal.js";
import { createFiles, createSettings, createTabs, createTheme } from "./settings.js";
import { createTools } from "./tools.js";
import { busy, cancel, fail, live, work } from "./work.js";

const at = id => document.getElementById(id);
const TITLE = at("subtitle").textContent;
// One picture: hidden regions, boxes that the user drew, boxes of those found without them, joints pinned by person,
// the pins of the answer that is shown, the server's answer without pins and what it was asked, and the answer that is shown;
// `shown`: all that as it was answered, `past` and `future`: answers to go back and forth to; `live`: whether the camera runs,
// `flight`: what ends the request about its frame; `coming`: seconds of the frame that a video has come to.
const fresh = () => ({
  media: null, file: null, kind: "photo", name: "", hidden: [], drawn: [], found: [], pins: new Map(), accepted: new Map(), base: null, asked: "", record: null,
  shown: null, past: [], future: [], live: false, flight: null, coming: null,
});
const SETTLED = 350;                                         // ms after the last change of a setting
const MOST_PAST = { photo: 30, video: 2 }, RATE_OVER = 10;   // answers; frames of the camera
let session = fresh(), viewer = null, loading = 0, settling = null;

onToken(wrong => new Promise(resolve => {
  const dialog = at("tokenDialog");
  at("tokenText").classList.toggle("wrong", wrong);
  if (wrong) at("tokenText").textContent = "That token was not the right one. It is the word after di2pose serve --token.";
  at("token").value = "";
  at("tokenForm").onsubmit = () => resolve(at("token").value);
  at("tokenCancel").onclick = () => dialog.close();
  dialog.onclose = () => resolve(null);                      // after a submit this comes too late to count
  if (!dialog.open) dialog.showModal();
}));

const nextTheme = createTheme(() => viewer?.repaint());
at("helpButton").onclick = () => at("help").showModal();
const model = await json("v1/model").catch(error => { fail(error.message); throw error; });
const host = {
  viewer: () => viewer, session: () => session, tools: () => tools, personFields, person: () => person(session.record), showPerson,
  taken, layer: (...a) => lab.layer(...a), patchSide: () => lab.patchSide(), changed: edited, model,
};
const tools = createTools(host), lab = createLab(host), reveal = createReveal(host), pins = createPins(host);
const settings = createSettings(model, () => edited(SETTLED));
const openTab = createTabs(name => {
  if (name !== "reveal") reveal.stop();
  if (name === "angles") viewer?.draw();                     // the plot needs to know how wide it is
});
const listFiles = createFiles(model, () => {
  const { media, name, kind } = session, fields = kind === "video" ? settings.fields(true) : session.pins.size ? personFields() : wholeFields();
  return { name, body: form(media.file, kind, fields) };
});
createIntake(open, openLive);

// The chosen person in the server's JSON; undefined where they are not in the frame.
function person(record) {
  return record?.frames[viewer.state.frame]?.people.find((p, place) => number(p, place) === viewer.state.person);
}

// Everybody in the picture. Boxes replace the detector, so those whom it found go along with the drawn ones.
function wholeFields() {
  const fields = settings.fields(session.kind === "video");
  if (session.hidden.length) fields.occluded = session.hidden;
  if (session.drawn.length) fields.boxes = [...session.found, ...session.drawn];
  return fields;
}

// One person, by place; the chosen one if none is named.
function personFields(id = viewer.state.person) {
  const { max_people, min_score, ...fields } = wholeFields(), held = session.pins.get(id);
  const someone = (session.base ?? session.record).frames[0].people[id];
  return { ...fields, boxes: someone && [someone.box_px], ...held && { pin: held } };
}

async function open(file) {
  const mine = ++loading, trouble = refused(file, model.limits);
  fail(trouble);
  if (trouble) return;
  cancel();
  const media = await openMedia(file, model.limits, timeOf);
  if (mine !== loading) return media.close();
  const { video_seconds: most } = model.limits;
  if (media.duration > most + 0.5) { media.close(); return fail(`The video lasts ${Math.round(media.duration)} s; this server takes ${most} s: cut it shorter.`); }
  begin(media);
  await run();
}

function leave() {
  clearTimeout(settling);
  session.media?.close();
  session.flight?.abort();
}

function begin(media) {
  const video = media.kind === "video";
  leave();
  session = { ...fresh(), media, file: media.file, kind: media.kind, name: media.name };
  at("start").hidden = true;
  at("stage").hidden = at("panel").hidden = at("restart").hidden = at("tools").hidden = false;
  at("subtitle").textContent = media.name;
  document.body.classList.toggle("video", video);
  at("grabFrame").hidden = !media.video;
  ofTheCamera(false);
  at("mediaNote").textContent = media.note;
  at("mediaNote").hidden = !media.note;
  at("pinBox").hidden = video;
  listFiles(video);
  reveal.stop(); lab.stop();
  const start = empty(media.size ?? [4, 3]);
  if (viewer) { viewer.fitPhoto(); viewer.show(start); } else mount(start);
  tools.use("look");
  if (!video && matchMedia("(pointer: fine)").matches) tools.use("pin");
  openTab("sample");
  chips();
  offerPast();
}

// What the page offers while the camera runs, and when it does not.
function ofTheCamera(live) {
  session.live = live;
  at("liveStop").hidden = at("liveText").hidden = !live;
  at("undo").parentElement.hidden = live;
  for (const name of ["reveal", "lab"]) at("tab-" + name).disabled = live || session.kind === "video";
  for (const button of document.querySelectorAll("[data-tool]")) button.hidden = live || session.kind === "video";
}

// One frame at a time: the next one is taken when the answer has come.
async function openLive(stream) {
  cancel();
  loading++;
  const media = await openCamera(stream), times = [];
  begin(media);
  ofTheCamera(true);
  tools.use("look");
  const mine = session, { signal } = mine.flight = new AbortController();
  at("liveText").textContent = "Live";
  try {
    while (mine === session && mine.live) {
      const { size, still, file } = await media.take(), fields = { ...settings.fields(true), hypotheses: 1, second_look: false };
      const record = await json("v1/predict", { body: form(file, "photo", fields), signal });
      if (mine !== session || !mine.live) break;
      Object.assign(media, { size, still, file });
      Object.assign(mine, { file, base: record, record });
      times.push(performance.now());
      if (times.length > RATE_OVER) times.shift();
      const rate = 1000 * (times.length - 1) / (times.at(-1) - times[0]);
      at("liveText").textContent = "Live" + (rate ? ` \u00b7 ${rate.toFixed(1)} frames a second` : "");
      present();
    }
  } catch (error) {
    if (signal.aborted) return;
    fail(error.message);
    stopLive();
  }
}

// The frame that is shown last is a photo from now on.
function stopLive() {
  session.media.close();
  session.flight.abort();
  ofTheCamera(false);
  if (session.record) run();
}

function mount(start) {
  const options = {
    picture: (k, ready) => session.media?.picture(k, ready), paint: tools.paint, changed: chosen, first: 1,
    get pin() { return !session.live && tools.state.tool === "pin" && session.record && !reveal.playing() ? pins.pin : null; },
  };
  viewer = Di2PoseViewer.mount(at("stage"), start, options);
  viewer.parts.photo.append(viewer.parts.transport, at("tools"));
  at("pane-joints").append(viewer.parts.table);
  at("pane-angles").append(viewer.parts.degrees);
  at("stage").append(at("panel"));
  tools.listen(viewer);
}

// Seconds of the video; while it is worked on, of the frame that came last.
const timeOf = k => (session.coming ?? session.record?.frames[k]?.time_s ?? 0) + 0.4 / (session.record?.fps || 30);

// Ask the server, show what it says. What was asked already is not asked again, unless `anew`.
async function run(anew = false) {
  const mine = session, fields = wholeFields(), asked = JSON.stringify(fields), video = mine.kind === "video", wanted = state();
  const { frame: place, person: who } = viewer?.state ?? {};
  clearTimeout(settling);
  if (!mine.file) return;
  const title = video ? "Following everybody through the video" : mine.record ? "Drawing the pose anew" : "Looking for people";
  const done = await work(title, async (signal, say) => {
    const progress = ({ state, frames_done, frames }) => say(state !== "waiting" ? `${title} \u00b7 frame ${Math.min(frames, frames_done + 1)} of ${frames}` : "");
    const coming = frame => {
      mine.coming = frame.frames[0].time_s ?? 0;
      viewer.show(payload(frame));
      at("stage").dataset.coming = Number(at("stage").dataset.coming ?? 0) + 1;
    };
    const ask = asking => {
      const body = form(mine.file, mine.kind, asking);
      return video ? job(body, { signal, say, progress, coming }) : json("v1/predict", { body, signal, say });
    };
    const base = anew || asked !== mine.asked ? await ask(fields) : mine.base;
    const kept = carried(mine, mine.pins, base), accepted = carried(mine, mine.accepted, base), people = [...base.frames[0].people], refusals = [];
    for (const [id, wanted] of kept) {
      const pinned = await pins.ask(pin => ask({ ...personFields(id), boxes: [people[id].box_px], pin }), wanted, accepted.get(id));
      if (pinned.pin) kept.set(id, pinned.pin); else kept.delete(id);
      if (pinned.refusal) refusals.push(pinned.refusal);
      people[id] = pinned.answer?.frames[0].people[0] ?? people[id];
    }
    return { base, kept, refusals, record: kept.size ? { ...base, frames: [{ ...base.frames[0], people }] } : base };
  });
  if (mine !== session || (!done && busy())) return;           // another request is in its place
  if (mine.coming !== null) Object.assign(viewer.state, { frame: place, person: who });
  mine.coming = null;
  offerPast();
  if (!done) {
    if (mine.record) viewer.show(payload(mine.record)); else viewer.show({ ...empty(viewer.place().size), nobody: "no answer" });
    return;
  }
  Object.assign(mine, { base: done.base, asked, pins: done.kept, accepted: new Map(done.kept), record: done.record });
  if (!wanted.drawn.length) mine.found = done.base.frames[0].people.map(p => p.box_px);
  const before = mine.shown;
  mine.shown = { ...state(), hidden: wanted.hidden, drawn: wanted.drawn, settings: wanted.settings };
  if (before && given(before) !== given(mine.shown)) {
    mine.past = [...mine.past, before].slice(-MOST_PAST[mine.kind]);
    mine.future = [];
  }
  fail(done.refusals.join(" "));
  present();
  live(about(mine.record));
  if (viewer.state.person === null) {
    fail("Nobody was found." + (video ? "" : " Draw a box where somebody is."));
    if (!video && tools.state.tool !== "add") tools.use("add");
  } else if (document.activeElement === document.body && !matchMedia("(pointer: coarse)").matches) viewer.view.focus({ preventScroll: true });   // the arrows turn it
}

// Show the session's answer.
function present() {
  at("stage").dataset.answers = Number(at("stage").dataset.answers ?? 0) + 1;
  reveal.stop(); lab.stop();
  viewer.show(payload(session.record));
  at("subtitle").textContent = session.name + " \u00b7 " + about(session.record);
  chips();
  chosen();
  offerPast();
}

// What was given by the user, and what the server made of it.
function state() {
  const { hidden, drawn, found, pins, accepted, base, asked, record } = session;
  return { hidden: [...hidden], drawn: [...drawn], found, pins: new Map(pins), accepted: new Map(accepted), base, asked, record, settings: settings.read() };
}
const given = ({ hidden, drawn, pins, settings }) => JSON.stringify([hidden, drawn, [...pins], settings]);
const unanswered = () => session.shown && given(session.shown) !== given(state());

// Back by an answer (from the past to the future), or forth; first of all back to the answer that is shown.
function travel(from, to) {
  if (!session.shown || session.live) return;
  const pending = from === "past" && unanswered();
  if (!pending && !session[from].length) return;
  cancel();
  clearTimeout(settling);
  fail("");
  if (!pending) { session[to].push(session.shown); session.shown = session[from].pop(); }
  const { settings: values, ...rest } = session.shown;
  Object.assign(session, { ...rest, hidden: [...rest.hidden], drawn: [...rest.drawn], pins: new Map(rest.pins), accepted: new Map(rest.accepted) });
  settings.write(values);
  tools.state.draft = null;
  present();
  live((to === "future" ? "Undone: " : "Redone: ") + about(session.record));
}
function offerPast() {
  at("undo").setAttribute("aria-disabled", !(session.past.length || unanswered()));
  at("redo").setAttribute("aria-disabled", !session.future.length);
}

// Pins of the people who are still there, under their new numbers.
function carried(old, pins, base) {
  const kept = new Map();
  for (const [id, pin] of pins) {
    const place = old.base ? whose(old.base.frames[0].people[id].box_px, base.frames[0].people) : -1;
    if (place >= 0) kept.set(place, pin);
  }
  return kept;
}

// A setting, a pin or a rectangle is another one now.
function edited(wait = 0) {
  chips();
  offerPast();
  clearTimeout(settling);
  if (!session.file || session.live) return;
  if (at("auto").checked || !session.record) { if (wait) settling = setTimeout(run, wait); else run(); }
  else { viewer.show(payload(pins.pending(session.record))); live("Changed: press Resample"); }
}

function taken(tool, rect) {
  if (tool === "patch") return lab.cover(rect);
  if (tool === "hide") session.hidden.push(rect);
  else session.drawn.push(rect);
  tools.use("look");
  edited();
}

function chips() {
  const chip = (list, words) => list.map((_, k) => makeChip(words + (list.length > 1 ? " " + (k + 1) : ""), () => { list.splice(k, 1); edited(); viewer.draw(); }));
  at("rectChips").replaceChildren(...chip(session.hidden, "hidden region"), ...chip(session.drawn, "added person"));
  pins.chips(makeChip);
  const many = session.base?.frames[0].people.length > 1, several = session.pins.size && many;
  at("filesNote").textContent = several ? "Joints are pinned, which is about one person: files hold the chosen one alone."
    : "Of several people the formats for one (.trc, .c3d, .bvh, .glb, .mot) come as one file each, packed together." + (many ? " Files count people from 0: Person 1 is their number 0." : "");
}

function makeChip(words, remove) {
  const button = document.createElement("button");
  button.className = "chip";
  button.append(words, Object.assign(document.createElement("span"), { textContent: "\u00d7", ariaHidden: "true" }));
  button.setAttribute("aria-label", `Remove: ${words}`);
  button.onclick = remove;
  return button;
}

// Another person, frame or joint is chosen.
let last = null;
function chosen() {
  if (!viewer || !session.record) return;
  if (last !== viewer.state.person) { last = viewer.state.person; reveal.stop(); lab.uncover(); lab.stop(); chips(); }
  pins.chosen();
}

// In place of the estimate, for as long as a patch lies on the photo.
function showPerson(one) {
  const people = session.record.frames[0].people.map((p, place) => one && place === viewer.state.person ? one : p);
  viewer.show(payload({ ...session.record, frames: [{ ...session.record.frames[0], people }] }));
}

function restart() {
  cancel();
  leave();
  loading++;
  session = fresh();
  reveal.stop(); lab.stop();
  at("start").hidden = false;
  at("stage").hidden = at("restart").hidden = true;
  at("subtitle").textContent = TITLE;
  fail("");
  at("choose").focus();
}

at("restart").onclick = restart;
at("resample").onclick = () => run(true);
at("undo").onclick = () => travel("past", "future");
at("redo").onclick = () => travel("future", "past");
at("liveStop").onclick = stopLive;
at("grabFrame").onclick = async () => {
  const { video, size, name } = session.media;
  open(await jpeg(video, size, `${name.replace(/\.[^.]*$/, "")}-${session.record?.frames[viewer.state.frame].frame_index ?? 0}.jpg`));
};

const { limits } = model, mb = bytes => (bytes / 1e6).toFixed(0) + " MB";
at("limits").textContent = `Photos up to ${mb(limits.bytes)} (bigger ones are made smaller here), videos up to ${limits.video_seconds} s and ${mb(limits.video_bytes)}.`;

const KEYS = {
  o: () => at("file").click(), c: () => at("cameraButton").click(), t: nextTheme, "?": () => at("help").showModal(),
  r: () => session.record && run(true), n: () => session.record && at("another").click(),
  l: () => session.record && session.kind === "photo" && (openTab("lab"), tools.use("patch")),
  ...Object.fromEntries([["p", "pin"], ["h", "hide"], ["a", "add"]].map(([key, tool]) => [key, () => session.record && session.kind === "photo" && tools.use(tool)])),
  " ": () => reveal.playing() && reveal.play(),
};
document.addEventListener("keydown", event => {
  const key = event.key.toLowerCase(), typed = event.target.closest("select, textarea, input:not([type=range], [type=checkbox])");
  if ((event.ctrlKey || event.metaKey) && !event.altKey && /^[yz]$/.test(key) && !typed && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    return key === "y" || event.shiftKey ? travel("future", "past") : travel("past", "future");
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (busy()) cancel(); else if (session.live) stopLive(); else if (viewer && tools.state.tool !== "look") tools.use(tools.state.tool);
    return;
  }
  if (typed) return;
  if (event.key === " " && (event.target.closest("button, summary, input") || !reveal.playing())) return;
  const person = viewer && session.record && /^[1-9]$/.test(event.key) ? [...at("person").options][event.key - 1] : null;
  if (person) viewer.choosePerson(Number(person.value));
  else if (KEYS[key]) KEYS[key]();
  else return;
  event.preventDefault();
});
