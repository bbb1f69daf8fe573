"use strict";
// The viewer: photo with overlay, 3D view, table of joints, joint angles, time. The one-file page of `result.save("x.html")` has it
// inside, the page of `di2pose serve` links it.
//
// Di2PoseViewer.mount(element, data, options) fills the element and returns the viewer.
//   data: as output/viewer.py's page_data writes it; `frames[k].camera` ({focal, centre}) lets joints be dragged on the photo;
//     `nobody` is what the 3D view says when there is nobody.
//   options, all of them optional:
//     picture(k, ready)   what to draw under frame k instead of frames[k].photo; calls ready() when it has become another
//     paint(pen, place)   draws over the photo; place: {scale, x, y, size} from pixels of the picture to the canvas
//     changed(state)      another person, frame or joint was chosen
//     pin(id, joint, xyz) the user clicked on a joint (xyz null) or dragged it to xyz, mm from the pelvis; without it
//                         joints do not move
//     first               the number in the name of person 0: 0, as in the files, where it is left out
globalThis.Di2PoseViewer = (() => {
  const { STATES, UNSURE, known, guessed, sideOf, drawOverlay, drawSpace } = Di2PoseDraw;
  const START = { yaw: 0.55, pitch: 0.18, zoom: 1 };
  const MOST_ZOOM = 12, ZOOM_STEP = 1.4, PAN_STEP = 40;      // of the photo; px
  const PARTS = `
    <section class="card photo" aria-label="Photo">
      <canvas id="photo" role="application" tabindex="0"></canvas>
      <div class="lens" role="group" aria-label="Zoom of the photo"><button id="lensOut" aria-label="Zoom out">&minus;</button><button id="lensFit" aria-label="Whole photo"></button><button id="lensIn" aria-label="Zoom in">+</button></div>
      <div class="legend" aria-hidden="true">
        <span><i class="dot right"></i>right</span><span><i class="dot left"></i>left</span>
        <span><i class="dot middle"></i>middle</span><span><i class="dot guessed"></i>hidden or out of frame</span><span><i class="dash"></i>&plusmn; above ${UNSURE} mm</span>
      </div>
    </section>
    <section class="card space" aria-label="3D pose">
      <canvas id="view" tabindex="0" role="application" aria-label="3D view. Drag or arrow keys turn, wheel, pinch or plus and minus zoom."></canvas>
      <div class="tip" id="tip" hidden></div>
      <div class="bar">
        <select id="person" aria-label="Person"></select>
        <div><button id="ghosts" aria-pressed="true" title="Key G">Hypotheses</button><button id="balls" aria-pressed="true" title="Key B">90 % balls</button><button id="everybody" aria-pressed="false" title="Key E">Everybody</button></div>
        <div role="group" aria-label="Seen from"><button data-yaw="0" data-pitch="0">Camera</button><button data-yaw="1.5708" data-pitch="0">Side</button><button data-yaw="0" data-pitch="1.5">Top</button></div>
      </div>
    </section>
    <section class="card transport bar" aria-label="Time" hidden>
      <button id="play" title="Space bar">Play</button>
      <input id="slider" type="range" min="0" step="1" value="0" aria-label="Frame">
      <output id="time"></output>
    </section>
    <section class="card table" aria-label="Joints">
      <table>
        <caption>Millimetres from the pelvis: x right, y down, z away from the camera. The true joint should lie within &plusmn; of this in 9 of 10 cases.</caption>
        <thead><tr><th scope="col">joint</th><th scope="col">x</th><th scope="col">y</th><th scope="col">z</th><th scope="col" aria-label="plus or minus, 90 %">&plusmn;</th><th scope="col">state</th></tr></thead>
        <tbody id="rows"></tbody>
      </table>
    </section>
    <section class="card degrees" id="angles" aria-label="Joint angles"></section>`;

  function mount(element, start, options = {}) {
    element.classList.add("viewer");
    element.innerHTML = PARTS;
    const at = id => document.getElementById(id);
    const photo = at("photo"), view = at("view"), tip = at("tip"), slider = at("slider");
    const parts = Object.fromEntries(["photo", "space", "transport", "table", "degrees"].map(name => [name, element.querySelector("." + name)]));
    const state = { frame: 0, person: null, joint: -1, ghosts: true, balls: true, everybody: false, playing: false, ...START };
    const lens = { zoom: 1, x: 0, y: 0 };                    // of the photo: how much larger, and the pixel in the middle
    let data, extents, whole, main, pictures, lastPicture, rows, angles, told, preview = null, colours = {};

    const readColours = () => {
      const style = getComputedStyle(document.documentElement);
      for (const key of ["right", "left", "middle", "grid", "edge", "soft", "mark"]) colours[key] = style.getPropertyValue("--" + key).trim();
    };
    const first = options.first ?? 0, frame = () => data.frames[state.frame];
    const chosen = () => frame().people.find(p => p.id === state.person);
    // A pose that is shown in place of the estimate: a joint under the finger, a step of the sampler.
    const shown = person => preview && preview.id === person.id ? { ...person, ...preview } : person;
    const scene = () => ({ names: data.joints, parents: data.parents, people: frame().people.map(shown), state, colours, nobody: data.nobody ?? "nobody was found", first });
    // In the 3D view: the main people and the chosen one, or everybody.
    const inView = p => state.everybody || main.has(p.id) || p.id === state.person;

    function show(next) {
      if (String(data?.size) !== String(next.size)) Object.assign(lens, { zoom: 1 });
      data = next;
      pictures = new Map(); lastPicture = preview = null;
      // The height of the floor and the reach of every person, over all frames: the view must not jump while a video plays.
      extents = {};
      for (const f of data.frames) for (const p of f.people) {
        const e = extents[p.id] ??= { low: -300, high: 300 };
        for (const j of p.joints.filter(known)) { e.low = Math.min(e.low, j[1]); e.high = Math.max(e.high, j[1]); }
      }
      whole = Di2PoseDraw.wholeScene(data.frames);
      // Main is who output/framing.py calls so in at least half of the frames.
      const votes = new Map();
      for (const f of data.frames) for (const p of f.people) votes.set(p.id, (votes.get(p.id) ?? 0) + (p.main === false ? -1 : 1));
      main = new Set(data.people.filter(id => votes.get(id) >= 0));
      if (!data.people.includes(state.person)) state.person = data.people.find(id => main.has(id)) ?? data.people[0] ?? null;
      state.frame = Math.min(state.frame, data.frames.length - 1);
      if (data.frames.length < 2) state.playing = false;
      at("person").replaceChildren(...data.people.map(id => new Option("Person " + (id + first), id)));
      at("person").hidden = at("everybody").hidden = data.people.length < 2;
      if (data.people.length < 2) state.everybody = false;
      parts.photo.hidden = !options.picture && !data.frames.some(f => f.photo);
      element.classList.toggle("blind", parts.photo.hidden);
      photo.style.aspectRatio = data.size[0] + " / " + data.size[1];
      element.style.setProperty("--ratio", data.size[0] / data.size[1]);
      element.classList.toggle("tall", data.size[0] < 0.9 * data.size[1]);
      photo.setAttribute("aria-label", "Photo with the joints of " + (data.people.length === 1 ? "one person" : data.people.length + " people") + " drawn on it. Plus and minus zoom, arrows move it.");
      parts.transport.hidden = data.frames.length < 2;
      parts.table.hidden = parts.degrees.hidden = !data.people.length;
      slider.max = data.frames.length - 1;
      at("rows").replaceChildren();
      rows = data.joints.map(addRow);
      parts.degrees.replaceChildren();
      angles = Di2PoseAngles.panel(parts.degrees, data.frames, go);
      draw(); settle();
    }

    function picture(k) {
      if (options.picture) return options.picture(k, drawPhoto);
      const uri = data.frames[k]?.photo;
      if (!uri) return null;
      if (!pictures.has(k)) {
        const image = new Image();
        image.onload = () => { if (k === state.frame) drawPhoto(); };
        image.src = uri;
        pictures.set(k, image);
      }
      if (k === state.frame) for (let next = 1; next <= 3; next++) picture(k + next);
      return pictures.get(k).complete ? pictures.get(k) : null;
    }

    function place() {
      const w = photo.clientWidth, h = photo.clientHeight, scale = lens.zoom * Math.min(w / data.size[0], h / data.size[1]);
      // In the middle where it fits, else without a gap at its borders.
      const begin = (room, side, middle) => side <= room ? (room - side) / 2 : Math.min(0, Math.max(room - side, room / 2 - scale * middle));
      return { scale, x: begin(w, scale * data.size[0], lens.x), y: begin(h, scale * data.size[1], lens.y), size: data.size };
    }
    // The photo larger or smaller; what is at `at` (px of the canvas) stays there.
    function zoomPhoto(factor, at = [photo.clientWidth / 2, photo.clientHeight / 2]) {
      const { scale, x, y } = place(), zoom = Math.min(MOST_ZOOM, Math.max(1, lens.zoom * factor)), next = scale * zoom / lens.zoom;
      const middle = (from, side, k) => (at[k] - from) / scale + (side / 2 - at[k]) / next;
      Object.assign(lens, { zoom, x: middle(x, photo.clientWidth, 0), y: middle(y, photo.clientHeight, 1) });
      settle();
    }
    function pan(dx, dy) {
      const { scale } = place();
      lens.x -= dx / scale; lens.y -= dy / scale;
      settle();
    }
    const fitPhoto = () => { lens.zoom = 1; settle(); };
    function settle() {
      const { scale, x, y } = place(), near = lens.zoom > 1;
      if (scale > 0) Object.assign(lens, { x: (photo.clientWidth / 2 - x) / scale, y: (photo.clientHeight / 2 - y) / scale });
      photo.classList.toggle("near", near);
      photo.dataset.zoom = lens.zoom;
      at("lensFit").textContent = Math.round(100 * lens.zoom) + " %";
      drawPhoto();
    }

    function drawPhoto() {
      if (parts.photo.hidden) return;
      lastPicture = picture(state.frame) ?? lastPicture;
      drawOverlay(photo, lastPicture, scene(), place(), options.paint);
    }

    function drawView() {
      Object.assign(view.dataset, { yaw: state.yaw, pitch: state.pitch, zoom: state.zoom, frame: state.frame, ghosts: state.ghosts });
      const all = scene(), people = all.people.filter(inView);
      Object.assign(view.dataset, { everybody: state.everybody, shown: people.length });
      drawSpace(view, { ...all, people, left: all.people.length - people.length }, state.everybody ? whole : extents[state.person]);
    }

    function addRow(name, j) {
      const row = at("rows").insertRow(), head = document.createElement("th"), button = document.createElement("button");
      head.scope = "row"; row.append(head); head.append(button);
      const mark = document.createElement("i");
      mark.ariaHidden = "true";
      button.append(mark, name.replaceAll("_", " "));
      button.onclick = () => choose(state.joint === j ? -1 : j);
      for (let k = 0; k < 5; k++) row.insertCell();
      row.cells[4].className = "spread";
      return row;
    }

    function fillTable() {
      const me = chosen(), most = me ? Math.max(...me.r90, 1) : 1;
      rows.forEach((row, j) => {
        const there = me && known(me.joints[j]), unseen = there && guessed(me.state[j]);
        const cells = there ? [...me.joints[j], me.r90[j]].map(v => Math.round(v).toString().replace("-", "\u2212")) : ["", "", "", ""];
        cells.push(there ? STATES[me.state[j]] : "");
        cells.forEach((text, k) => { row.cells[k + 1].textContent = text; });
        row.className = (unseen ? "guessed " : "") + (j === state.joint ? "chosen" : "");
        row.cells[4].style.setProperty("--share", there ? 100 * me.r90[j] / most + "%" : "0%");
        row.querySelector("i").className = "dot " + sideOf(data.joints[j]) + (unseen ? " guessed" : "");
        row.querySelector("button").setAttribute("aria-pressed", j === state.joint);
      });
    }

    function draw() {
      const f = frame();
      drawPhoto(); drawView(); fillTable(); angles.show(state.frame, state.person);
      slider.value = state.frame;
      at("person").value = state.person;
      at("time").textContent = f.time.toFixed(2) + " s \u00b7 frame " + f.index;
      slider.setAttribute("aria-valuetext", "frame " + f.index + ", " + f.time.toFixed(2) + " seconds");
      at("ghosts").setAttribute("aria-pressed", state.ghosts);
      at("balls").setAttribute("aria-pressed", state.balls);
      at("everybody").setAttribute("aria-pressed", state.everybody);
      at("play").textContent = state.playing ? "Pause" : "Play";
      const now = [state.frame, state.person, state.joint].join();
      if (now !== told) { told = now; options.changed?.(state); }
    }

    const choose = joint => { state.joint = joint; draw(); };
    const choosePerson = id => { state.person = id; draw(); };
    const go = k => { state.playing = false; state.frame = k; draw(); };
    const toggle = key => { state[key] = !state[key]; draw(); };
    const zoom = factor => { state.zoom = Math.min(12, Math.max(0.2, state.zoom * factor)); drawView(); };
    const rotate = (yaw, pitch) => {
      state.yaw += yaw; state.pitch = Math.min(1.57, Math.max(-1.57, state.pitch + pitch)); drawView();
    };
    const setPreview = pose => { preview = pose && { id: state.person, ...pose }; drawPhoto(); drawView(); };

    // Playing: the frame whose time is nearest to the clock's, over and over.
    let clock = 0;
    function step(now) {
      if (!state.playing) return;
      const last = data.frames.length - 1, end = data.frames[last].time + 1 / data.rate;
      let time = (now - clock) / 1000;
      if (time >= end) { clock = now - 1000 * data.frames[0].time; time = data.frames[0].time; }
      let k = state.frame;
      if (data.frames[k].time > time) k = 0;
      while (k < last && data.frames[k + 1].time <= time) k++;
      if (k !== state.frame) { state.frame = k; draw(); }
      requestAnimationFrame(step);
    }
    function play() {
      if (data.frames.length < 2) return;
      state.playing = !state.playing;
      clock = performance.now() - 1000 * (state.frame === data.frames.length - 1 ? data.frames[0] : frame()).time;
      draw();
      requestAnimationFrame(step);
    }

    function nearest(canvas, event) {
      const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
      let best = -1, least = 16;
      (canvas.places ?? []).forEach((p, j) => { const d = p ? Math.hypot(p[0] - x, p[1] - y) : 99; if (d < least) { best = j; least = d; } });
      return best;
    }

    // Joints under the finger: along the screen at their depth, in the 3D view as on the photo.
    let grip = null;
    function grab(canvas, event) {
      const j = options.pin && chosen() ? nearest(canvas, event) : -1;
      if (j < 0 || data.joints[j] === "pelvis" || (canvas === photo && !frame().camera)) return false;
      grip = { canvas, joint: j, from: [event.clientX, event.clientY], id: event.pointerId, xyz: null };
      canvas.setPointerCapture(event.pointerId);
      return true;
    }
    function pull(event) {
      const dx = event.clientX - grip.from[0], dy = event.clientY - grip.from[1], me = chosen(), was = me.joints[grip.joint];
      if (!grip.xyz && Math.hypot(dx, dy) < 4) return;
      if (grip.canvas === view) {
        const s = view.near[grip.joint];
        grip.xyz = view.looks.back(dx / s, dy / s).map((v, axis) => was[axis] + v);
      } else {
        const deep = was[2] + me.root[2], { scale } = place(), { focal } = frame().camera;
        grip.xyz = [was[0] + dx / scale / focal[0] * deep, was[1] + dy / scale / focal[1] * deep, was[2]];
      }
      const joints = [...me.joints], px = [...me.px], states = [...me.state], r90 = [...me.r90];
      joints[grip.joint] = grip.xyz; states[grip.joint] = r90[grip.joint] = 0;
      px[grip.joint] = onPhoto(grip.xyz, me.root) ?? px[grip.joint];
      setPreview({ joints, px, r90, state: states });
    }
    function release(event) {
      const { joint, xyz } = grip;
      grip = null;
      if (event.type === "pointercancel") return setPreview(null);
      choose(joint);
      options.pin(state.person, data.joints[joint], xyz);
    }
    // Where a point (mm from a pelvis that is at `root`) falls on the photo.
    function onPhoto(xyz, root) {
      const camera = frame().camera, deep = xyz[2] + root[2];
      return camera && deep > 0 ? [0, 1].map(axis => camera.centre[axis] + camera.focal[axis] * (xyz[axis] + root[axis]) / deep) : null;
    }

    // Pointers: one turns, or moves a joint; two pinch.
    const held = new Map(), wheelZoom = event => Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : event.ctrlKey ? 0.01 : 0.0015));
    const apart = fingers => { const [a, b] = [...fingers.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };
    view.addEventListener("pointerdown", event => {
      tip.hidden = true;
      if (!held.size && !grip && grab(view, event)) return;
      held.set(event.pointerId, [event.clientX, event.clientY]);
      view.setPointerCapture(event.pointerId);
      view.classList.add("held");
    });
    view.addEventListener("pointermove", event => {
      if (grip?.id === event.pointerId) return pull(event);
      const before = held.get(event.pointerId);
      if (!before) return hover(event);
      const wide = held.size === 2 ? apart(held) : 0;
      held.set(event.pointerId, [event.clientX, event.clientY]);
      if (held.size === 2) { if (wide > 0) zoom(apart(held) / wide); }
      else rotate((event.clientX - before[0]) * 0.009, (event.clientY - before[1]) * 0.009);
    });
    for (const kind of ["pointerup", "pointercancel"]) view.addEventListener(kind, event => {
      if (grip?.id === event.pointerId) return release(event);
      held.delete(event.pointerId);
      if (!held.size) view.classList.remove("held");
    });
    view.addEventListener("pointerleave", () => { tip.hidden = true; });
    view.addEventListener("wheel", event => { event.preventDefault(); zoom(wheelZoom(event)); }, { passive: false });
    view.addEventListener("dblclick", event => { const j = nearest(view, event); if (j >= 0) choose(j); });

    function hover(event) {
      const j = nearest(view, event), me = chosen();
      tip.hidden = j < 0;
      if (j < 0) return;
      tip.textContent = data.joints[j].replaceAll("_", " ") + " \u00b1 " + Math.round(me.r90[j]) + " mm, " + STATES[me.state[j]];
      tip.style.left = Math.min(view.clientWidth - 90, Math.max(90, view.places[j][0])) + "px";
      tip.style.top = Math.max(44, view.places[j][1]) + "px";
    }

    // On the photo one pointer moves a joint, or the photo where it is larger than its place; two pinch.
    let gripped = false, slid = false;
    const fingers = new Map(), onCanvas = ([x, y]) => { const box = photo.getBoundingClientRect(); return [x - box.left, y - box.top]; };
    photo.addEventListener("pointerdown", event => {
      if (event.button || grip) return;
      if (!fingers.size) slid = false;
      gripped = !fingers.size && grab(photo, event);
      if (gripped) return;
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      if (lens.zoom > 1 || fingers.size > 1) for (const id of fingers.keys()) photo.setPointerCapture(id);
    });
    photo.addEventListener("pointermove", event => {
      if (grip?.id === event.pointerId) return pull(event);
      const before = fingers.get(event.pointerId), now = [event.clientX, event.clientY];
      if (!before || (fingers.size === 1 && (lens.zoom === 1 || (!slid && Math.hypot(now[0] - before[0], now[1] - before[1]) < 4)))) return;
      const wide = fingers.size === 2 ? apart(fingers) : 0, share = 1 / fingers.size;
      fingers.set(event.pointerId, now);
      slid = true;
      if (wide > 0) zoomPhoto(apart(fingers) / wide, onCanvas([0, 1].map(axis => [...fingers.values()].reduce((sum, p) => sum + p[axis], 0) / 2)));
      pan(share * (now[0] - before[0]), share * (now[1] - before[1]));
    });
    for (const kind of ["pointerup", "pointercancel"]) photo.addEventListener(kind, event => {
      fingers.delete(event.pointerId);
      if (grip?.id === event.pointerId) release(event);
    });
    photo.addEventListener("pointerleave", event => { if (!photo.hasPointerCapture(event.pointerId)) fingers.delete(event.pointerId); });
    // Without this a finger on a joint, or two, would scroll the page.
    photo.addEventListener("touchmove", event => { if ((grip || event.touches.length > 1) && event.cancelable) event.preventDefault(); }, { passive: false });
    photo.addEventListener("wheel", event => {
      if (lens.zoom === 1 && event.deltaY >= 0) return;      // the page scrolls
      event.preventDefault();
      zoomPhoto(wheelZoom(event), onCanvas([event.clientX, event.clientY]));
    }, { passive: false });
    photo.addEventListener("dblclick", fitPhoto);
    photo.addEventListener("click", event => {               // the person whose joint is nearest
      if (gripped || slid) return;
      const [x, y] = toPicture(event);
      let least = Infinity;
      for (const p of frame().people) for (const q of p.px.filter(known)) {
        const d = Math.hypot(q[0] - x, q[1] - y);
        if (d < least) { least = d; state.person = p.id; }
      }
      draw();
    });
    // Pixels of the picture under a pointer.
    function toPicture(event) {
      const box = photo.getBoundingClientRect(), { scale, x, y } = place();
      return [(event.clientX - box.left - x) / scale, (event.clientY - box.top - y) / scale];
    }

    document.addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.target.closest("select, textarea, dialog, input:not([type=range])") || !element.offsetParent) return;
      const free = event.target === view || event.target === document.body;
      const page = document.documentElement;
      const scrolls = event.target !== view && page.scrollHeight > page.clientHeight;
      const turns = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0] };
      if (!scrolls) Object.assign(turns, { ArrowUp: [0, -0.12], ArrowDown: [0, 0.12] });
      const plain = { "+": () => zoom(1.15), "=": () => zoom(1.15), "-": () => zoom(1 / 1.15), "0": () => { Object.assign(state, START); draw(); },
        g: () => toggle("ghosts"), b: () => toggle("balls"), e: () => data.people.length > 1 && toggle("everybody") };
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      const ways = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      const photoKeys = { "+": () => zoomPhoto(ZOOM_STEP), "=": () => zoomPhoto(ZOOM_STEP), "-": () => zoomPhoto(1 / ZOOM_STEP), "0": fitPhoto };
      if (event.target === photo && lens.zoom > 1 && ways[key]) pan(...ways[key].map(way => way * PAN_STEP));
      else if (event.target === photo && photoKeys[key]) photoKeys[key]();
      else if (free && turns[key]) rotate(...turns[key]);
      else if (key === " " && event.target.tagName !== "BUTTON" && data.frames.length > 1) play();
      else if (plain[key]) plain[key]();
      else return;
      event.preventDefault();
    });

    at("ghosts").onclick = () => toggle("ghosts");
    at("balls").onclick = () => toggle("balls");
    at("everybody").onclick = () => toggle("everybody");
    at("play").onclick = play;
    at("lensOut").onclick = () => zoomPhoto(1 / ZOOM_STEP);
    at("lensIn").onclick = () => zoomPhoto(ZOOM_STEP);
    at("lensFit").onclick = fitPhoto;
    slider.oninput = () => go(Number(slider.value));
    at("person").onchange = event => choosePerson(Number(event.target.value));
    for (const button of element.querySelectorAll("[data-yaw]"))
      button.onclick = () => { state.yaw = Number(button.dataset.yaw); state.pitch = Number(button.dataset.pitch); drawView(); };
    const repaint = () => { readColours(); draw(); };
    readColours();
    show(start);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    new ResizeObserver(() => { draw(); settle(); }).observe(element);
    return { parts, state, photo, view, fitPhoto, show, draw, repaint, choose, choosePerson, go, setPreview, onPhoto, toPicture, chosen, place };
  }

  return { mount };
})();
