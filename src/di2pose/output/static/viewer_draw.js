"use strict";
// What the viewer draws with: canvases, bones, joints, and the eye that looks at the 3D pose. No state of its own.
globalThis.Di2PoseDraw = (() => {
  const STATES = ["pinned", "visible", "occluded", "out of frame", "unknown"];
  const ON_PHOTO = { right: "#26c85a", left: "#3e86ff", middle: "#fac83c", edge: "#101216", mark: "#ff62ad" };  // a photo has no dark mode
  const FAR = 6000;                                          // mm from the eye to the middle of the person
  const UNSURE = 300;                                        // mm, output/overlay.py's UNSURE_MM

  const known = p => p !== null && p[0] !== null;
  const guessed = state => state > 1;
  const unsure = radius => radius > UNSURE;
  const sideOf = text => text.includes("right_") ? "right" : text.includes("left_") ? "left" : "middle";

  function fit(canvas) {
    const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    pen.lineCap = "round";
    return [pen, w, h];
  }

  function bone(pen, a, b, width, colour, dashed, edge) {
    pen.setLineDash(dashed ? [width * 1.1, width * 2.6] : []);
    for (const [w, c] of edge ? [[width * 1.7, edge], [width, colour]] : [[width, colour]]) {
      pen.lineWidth = w; pen.strokeStyle = c;
      pen.beginPath(); pen.moveTo(a[0], a[1]); pen.lineTo(b[0], b[1]); pen.stroke();
    }
    pen.setLineDash([]);
  }

  function dot(pen, p, radius, colour) {
    pen.fillStyle = colour; pen.beginPath(); pen.arc(p[0], p[1], radius, 0, 2 * Math.PI); pen.fill();
  }

  function ring(pen, p, radius, colour) {
    pen.strokeStyle = colour; pen.lineWidth = 2.5;
    pen.beginPath(); pen.arc(p[0], p[1], radius, 0, 2 * Math.PI); pen.stroke();
  }

  // A joint that the user fixed: a square round it.
  function pinned(pen, p, width, colour) {
    const r = width * 1.9;
    pen.strokeStyle = colour; pen.lineWidth = 2.5; pen.setLineDash([]);
    pen.strokeRect(p[0] - r, p[1] - r, 2 * r, 2 * r);
  }

  // Bones, then joints, in the order given; bones with an unsure end are dashed, joints that are not in sight hollow.
  function figure(pen, { names, parents }, { state: states, r90 }, points, width, order, paint) {
    for (const j of order) {
      const up = parents[j];
      if (up >= 0 && points[j] && points[up])
        bone(pen, points[j], points[up], width, paint[sideOf(names[j] + names[up])], unsure(r90[j]) || unsure(r90[up]), paint.edge);
    }
    for (const j of order) if (points[j]) {
      dot(pen, points[j], width * 1.4, paint.edge);
      dot(pen, points[j], width * 1.05, paint[sideOf(names[j])]);
      if (guessed(states[j])) dot(pen, points[j], width * 0.55, "#fff");
      if (states[j] === 0) pinned(pen, points[j], width, paint.mark);
    }
  }

  // The eye that looks at the 3D pose: mm to [x px, y px, px per mm, depth], and a way on the screen back to mm.
  function eye(state, scale, middle, far, w, h) {
    const [cy, sy, cp, sp] = [Math.cos(state.yaw), Math.sin(state.yaw), Math.cos(state.pitch), Math.sin(state.pitch)];
    const turn = ([x, y, z]) => {
      const across = x * cy - z * sy, deep = x * sy + z * cy;
      return [across, cp * y - sp * deep, sp * y + cp * deep];
    };
    const project = p => {
      const [x, y, z] = turn([p[0], p[1] - middle, p[2]]), s = scale * far / Math.max(400, far + z);
      return [w / 2 + x * s, h / 2 + y * s, s, z];
    };
    const back = (dx, dy) => {                               // mm along the screen, at the depth where one starts
      const deep = -sp * dy;
      return [dx * cy + deep * sy, cp * dy, -dx * sy + deep * cy];
    };
    return { turn, project, back };
  }

  // Below, a scene is {names, parents, people, state, colours}; a canvas remembers in `places` where the chosen
  // person's joints are.

  function drawOverlay(canvas, picture, scene, place, paint) {
    const [pen] = fit(canvas), { state, names } = scene, { scale, x, y, size } = place;
    pen.imageSmoothingQuality = "high";
    if (picture) pen.drawImage(picture, x, y, scale * size[0], scale * size[1]);
    paint?.(pen, place);
    canvas.places = [];
    for (const person of scene.people) {
      const points = person.px.map(p => known(p) ? [x + scale * p[0], y + scale * p[1]] : null), own = person.id === state.person;
      const flat = points.filter(p => p).map(p => p[1]);
      const width = Math.min(6, Math.max(2.2, (Math.max(...flat) - Math.min(...flat)) / 65));
      pen.globalAlpha = own ? 1 : 0.45;
      figure(pen, scene, person, points, width, names.map((_, j) => j), ON_PHOTO);
      pen.globalAlpha = 1;
      if (own && points[state.joint]) ring(pen, points[state.joint], width * 2.4, scene.colours.mark);
      if (own) canvas.places = points;
    }
  }

  // A ball round everybody in all frames, mm of the camera: its middle and radius, and the height of the lowest joint.
  function wholeScene(frames) {
    const points = frames.flatMap(f => f.people.flatMap(p => p.joints.filter(known).map(j => j.map((v, axis) => v + p.root[axis]))));
    const low = [0, 1, 2].map(axis => points.reduce((least, p) => Math.min(least, p[axis]), Infinity));
    const high = [0, 1, 2].map(axis => points.reduce((most, p) => Math.max(most, p[axis]), -Infinity));
    const middle = low.map((v, axis) => (v + high[axis]) / 2);
    const radius = points.reduce((most, p) => Math.max(most, Math.hypot(...p.map((v, axis) => v - middle[axis]))), 500);
    return { middle, radius, floor: high[1] };
  }

  // `extent`: {low, high} of the chosen person, mm from the pelvis downwards, or a `wholeScene`. The canvas also
  // remembers the eye, and in `near` the pixels a millimetre at each joint.
  function drawSpace(canvas, scene, extent) {
    const [pen, w, h] = fit(canvas), { state, colours, names } = scene;
    const me = scene.people.find(p => p.id === state.person);
    canvas.places = [];
    if (!me) {
      pen.fillStyle = colours.soft; pen.font = "15px system-ui, sans-serif"; pen.textAlign = "center";
      pen.fillText(state.person === null ? scene.nobody : "person " + (state.person + scene.first) + " is not in this frame", w / 2, h / 2);
      return;
    }
    const { origin, middle, floor, tall, wide, far, step } = extent.radius ? roundAll(extent) : roundOne(extent, me);
    const scale = state.zoom * 0.84 * Math.min(h / tall, w / wide);
    const looks = canvas.looks = eye(state, scale, middle, far, w, h), { turn, project } = looks;
    for (let k = -4; k <= 4; k++) for (const line of [[[k, -4], [k, 4]], [[-4, k], [4, k]]]) {
      const [from, to] = line.map(([x, z]) => project([x * step, floor, z * step]));
      bone(pen, from, to, 1, colours.grid);
    }
    const moved = person => j => known(j) ? project(j.map((v, axis) => v + person.root[axis] - origin[axis])) : null;
    const everybody = scene.people.map(p => [p, p.joints.map(moved(p))]);
    everybody.sort((a, b) => (a[0] === me) - (b[0] === me));
    for (const [person, points] of everybody) {
      const own = person === me, width = Math.min(9, Math.max(2.4, 17 * (points[0]?.[2] ?? scale)));
      const order = names.map((_, j) => j).sort((a, b) => (points[b]?.[3] ?? 0) - (points[a]?.[3] ?? 0));
      if (own && !person.bare) spread(pen, scene, person, points, order, width, moved(person));
      pen.globalAlpha = own ? 1 : 0.3;
      figure(pen, scene, person, points, width, order, colours);
      pen.globalAlpha = 1;
      if (own && points[state.joint]) ring(pen, points[state.joint], width * 2.4, colours.mark);
      if (own) { canvas.places = points.map(p => p && [p[0], p[1]]); canvas.near = points.map(p => p?.[2]); }
    }
    pen.font = "12px system-ui, sans-serif"; pen.textAlign = "center"; pen.fillStyle = colours.soft;
    for (const [label, axis] of [["x", [1, 0, 0]], ["y", [0, 1, 0]], ["z", [0, 0, 1]]]) {
      const [x, y] = turn(axis);
      bone(pen, [40, h - 40], [40 + 20 * x, h - 40 + 20 * y], 1.5, colours.soft);
      pen.fillText(label, 40 + 30 * x, h - 36 + 30 * y);
    }
    pen.textAlign = "right";
    if (scene.left) pen.fillText(scene.people.length + " of " + (scene.people.length + scene.left) + " people shown", w - 14, h - 14);
  }

  // What a view is framed by: where its origin is, what must fit in (mm), how far the eye is, and the floor's squares.
  const roundOne = ({ low, high }, { root }) => ({ origin: root, middle: (low + high) / 2, floor: high, tall: high - low, wide: 1500, far: FAR, step: 250 });
  function roundAll({ middle, radius, floor }) {
    const far = Math.max(FAR, 4 * radius), size = 2 * radius * far / (far - radius);
    return { origin: middle, middle: 0, floor: floor - middle[1], tall: size, wide: size, far, step: 250 * Math.ceil(radius / 1000) };
  }

  // 90 % balls and hypotheses.
  function spread(pen, { state, colours, names, parents }, person, points, order, width, moved) {
    if (state.balls) for (const j of order) if (points[j]) {
      pen.globalAlpha = guessed(person.state[j]) ? 0.16 : 0.1;
      dot(pen, points[j], Math.max(0, person.r90[j] * points[j][2]), colours[sideOf(names[j])]);
    }
    if (state.ghosts) for (const sample of person.samples) {
      const ghost = sample.map(moved);
      pen.globalAlpha = 0.38;
      for (const j of order) {
        const up = parents[j];
        if (up >= 0 && ghost[j] && ghost[up]) bone(pen, ghost[j], ghost[up], width * 0.34, colours[sideOf(names[j] + names[up])]);
      }
    }
  }

  return { STATES, UNSURE, known, guessed, sideOf, bone, dot, drawOverlay, drawSpace, wholeScene };
})();
