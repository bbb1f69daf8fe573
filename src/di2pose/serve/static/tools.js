// Tools on the photo: pinning is the viewer's own; rectangles (hide, add, patch) are drawn here, by pointer or by keys.

const at = id => document.getElementById(id);
const LEAST = 8;                                             // px of the picture: less is a slip of the hand
const HINTS = {
  pin: "Click a joint to hold it, or drag it: here or in the 3D view.",
  hide: "Draw a rectangle over what is not to be looked at. With keys: arrows, Shift and arrows, Enter.",
  add: "Draw a box round somebody who was missed. With keys: arrows, Shift and arrows, Enter.",
  patch: "Drag the patch: what the model says then is shown when you let go. With keys: arrows, Enter.",
};

// host: viewer(), session(), taken(tool, rect) when a rectangle is finished, patchSide() px, layer(pen, place) below.
export function createTools(host) {
  const state = { tool: "look", draft: null };
  let from = null;
  const size = () => host.viewer().place().size;
  const drawing = () => ["hide", "add", "patch"].includes(state.tool);

  function use(tool) {
    const before = state.tool, canvas = host.viewer()?.photo;
    state.tool = before === tool ? "look" : tool;
    state.draft = from = null;
    if (canvas) {
      // Whoever drew by keys goes on where they began.
      if (!drawing() && document.activeElement === canvas) document.querySelector(`[data-tool=${before}], #patchTool`).focus({ preventScroll: true });
      canvas.style.touchAction = drawing() ? "none" : "";
      canvas.classList.toggle("crosshair", drawing());
      if (state.tool === "patch") state.draft = middle();
      if (drawing()) { canvas.focus({ preventScroll: true }); canvas.scrollIntoView({ block: "nearest" }); }
      host.viewer().draw();
    }
    for (const button of document.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", button.dataset.tool === state.tool);
    at("patchTool").setAttribute("aria-pressed", state.tool === "patch");
    at("toolHint").textContent = HINTS[state.tool] ?? "";
    at("toolHint").hidden = !HINTS[state.tool];
  }

  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  function middle() {
    const [w, h] = size(), side = state.tool === "patch" ? host.patchSide() : 0.3 * Math.min(w, h);
    return state.draft ?? [w / 2 - side / 2, h / 2 - side / 2, w / 2 + side / 2, h / 2 + side / 2];
  }
  function patchAt([x, y]) {
    const [w, h] = size(), side = host.patchSide(), left = clamp(x - side / 2, 0, w - side), top = clamp(y - side / 2, 0, h - side);
    return [left, top, left + side, top + side];
  }
  function between(a, b) {
    const [w, h] = size(), xs = [a[0], b[0]].map(x => clamp(x, 0, w)), ys = [a[1], b[1]].map(y => clamp(y, 0, h));
    return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
  }
  function take() {
    const rect = state.draft?.map(value => Math.round(10 * value) / 10);
    from = null;
    if (state.tool !== "patch") state.draft = null;
    if (rect && rect[2] - rect[0] >= LEAST && rect[3] - rect[1] >= LEAST) host.taken(state.tool, rect);
    host.viewer().draw();
  }

  function listen(viewer) {
    const on = (kind, act) => viewer.parts.photo.addEventListener(kind, event => {
      if (!drawing() || event.target !== viewer.photo) return;
      event.stopPropagation();                               // the viewer would choose a person
      act(event);
    }, { capture: true });
    on("click", () => {});
    on("pointerdown", event => {
      if (event.button || !event.isPrimary) return;
      viewer.photo.setPointerCapture(event.pointerId);
      from = viewer.toPicture(event);
      state.draft = state.tool === "patch" ? patchAt(from) : null;
      viewer.draw();
    });
    on("pointermove", event => {
      if (!from) return;
      const now = viewer.toPicture(event);
      state.draft = state.tool === "patch" ? patchAt(now) : between(from, now);
      viewer.draw();
    });
    on("pointerup", () => { if (from) take(); });
    on("pointercancel", () => { from = null; state.draft = null; viewer.draw(); });
    viewer.photo.addEventListener("keydown", event => {
      const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }, way = ways[event.key];
      if (!drawing() || (!way && event.key !== "Enter")) return;
      event.preventDefault();
      if (event.key === "Enter") return take();
      const [w, h] = size(), step = 0.02 * Math.min(w, h), [x0, y0, x1, y1] = middle(), [dx, dy] = way.map(v => v * step);
      if (event.shiftKey && state.tool !== "patch") state.draft = [x0, y0, clamp(x1 + dx, x0 + step, w), clamp(y1 + dy, y0 + step, h)];
      else {
        const mx = clamp(dx, -x0, w - x1), my = clamp(dy, -y0, h - y1);
        state.draft = [x0 + mx, y0 + my, x1 + mx, y1 + my];
      }
      viewer.draw();
    });
  }

  // Over the photo, under the figures.
  function paint(pen, place) {
    const put = ([x0, y0, x1, y1]) => [place.x + place.scale * x0, place.y + place.scale * y0, place.scale * (x1 - x0), place.scale * (y1 - y0)];
    host.layer(pen, place, put);
    for (const rect of host.session().hidden) hatch(pen, put(rect));
    for (const rect of host.session().drawn) outline(pen, put(rect), "#ffffffc0", [6, 5]);
    if (!state.draft) return;
    if (state.tool === "hide") hatch(pen, put(state.draft));
    if (state.tool === "patch") patch(pen, put(state.draft));
    outline(pen, put(state.draft), "#ffffff", state.tool === "add" ? [6, 5] : []);
  }

  for (const button of document.querySelectorAll("[data-tool]")) button.onclick = () => use(button.dataset.tool);
  return { state, use, listen, paint };
}

export function outline(pen, [x, y, w, h], colour, dashes = [], width = 2) {
  pen.setLineDash([]); pen.lineWidth = width + 2; pen.strokeStyle = "#0b0c0faa"; pen.strokeRect(x, y, w, h);
  pen.setLineDash(dashes); pen.lineWidth = width; pen.strokeStyle = colour; pen.strokeRect(x, y, w, h);
  pen.setLineDash([]);
}

export function patch(pen, [x, y, w, h]) {
  pen.fillStyle = "#8a8f98"; pen.fillRect(x, y, w, h);
  outline(pen, [x, y, w, h], "#ffffff");
}

function hatch(pen, [x, y, w, h]) {
  pen.save();
  pen.beginPath(); pen.rect(x, y, w, h); pen.clip();
  pen.fillStyle = "#14161ab8"; pen.fillRect(x, y, w, h);
  pen.strokeStyle = "#ffffff40"; pen.lineWidth = 2;
  pen.beginPath();
  for (let k = -h; k < w; k += 11) { pen.moveTo(x + k, y + h); pen.lineTo(x + k + h, y); }
  pen.stroke();
  pen.restore();
  outline(pen, [x, y, w, h], "#ffffff90", [], 1.5);
}
