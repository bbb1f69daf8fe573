// The panel: tabs, the sliders and fields of a request, files to download, the theme.
import { call } from "./api.js";
import { stem } from "./media.js";
import { live, work } from "./work.js";

const at = id => document.getElementById(id);
const NUMBERS = ["max_people", "min_score", "height_m", "field_of_view"];
const FORMATS = {
  json: "everything but the pixels", csv: "a table for spreadsheets and R", "angles.csv": "joint angles as a table", npz: "arrays for numpy", parquet: "a typed table",
  trc: "markers for OpenSim", c3d: "markers for biomechanics", bvh: "rotations for animation",
  "mixamo.bvh": "the same, Mixamo's names", glb: "a moving figure, for Blender and engines", mot: "angles for OpenSim", html: "a page to keep, in one file",
  png: "a figure for papers", jpg: "the photo with the pose",
};
const SETTINGS = ["hypotheses", "steps", "seed", "second_look", ...NUMBERS];
const ONE_PICTURE = ["png", "jpg"];
const THEMES = { "": ["\u25d0", "of the system"], light: ["\u2600", "light"], dark: ["\u263e", "dark"] };

export function createTabs(changed) {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  function choose(tab, focus) {
    for (const each of tabs) {
      const on = each === tab;
      each.setAttribute("aria-selected", on);
      each.tabIndex = on ? 0 : -1;
      at(each.getAttribute("aria-controls")).hidden = !on;
    }
    if (focus) tab.focus();
    changed(tab.id.slice(4));
  }
  tabs.forEach((tab, k) => {
    tab.onclick = () => choose(tab);
    tab.onkeydown = event => {
      const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!way) return;
      event.preventDefault();
      let next = k;
      do next = (next + way + tabs.length) % tabs.length; while (tabs[next].disabled);
      choose(tabs[next], true);
    };
  });
  return name => choose(at("tab-" + name));
}

// The fields that a request has beside its picture; `changed` when the user has set one.
export function createSettings(model, changed) {
  const { defaults, limits } = model;
  const tell = () => {
    at("hypothesesOut").textContent = at("hypotheses").value;
    at("stepsOut").textContent = Number(at("steps").value) || "the model's own";
  };
  at("hypotheses").max = Math.min(limits.hypotheses, 64);
  at("hypotheses").value = defaults.hypotheses;
  at("steps").max = Math.min(limits.steps, model.diffusion_steps ?? limits.steps);
  at("steps").min = defaults.steps ? 1 : 0;                  // 0: the server decides
  at("steps").value = defaults.steps ?? 0;
  at("seed").value = defaults.seed;
  at("max_people").max = limits.people;
  at("max_people").placeholder = defaults.max_people;
  const own = read();
  for (const id of ["hypotheses", "steps"]) at(id).oninput = tell;
  for (const id of SETTINGS) at(id).onchange = () => { address(); changed(); };
  at("another").onclick = () => { at("seed").value = whole("seed") + 1; address(); changed(); };
  at("copyLink").onclick = async () => {
    try { await navigator.clipboard.writeText(location.href); } catch { copyByHand(location.href); }
    at("copyLink").textContent = "Link copied";
    live("Link copied");
  };
  // Settings that are not the server's own stand in the address: a link that keeps them.
  const byAddress = () => write({ ...own, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) });
  addEventListener("hashchange", () => { byAddress(); changed(); });
  byAddress();

  function read() { return Object.fromEntries(SETTINGS.map(id => [id, String(at(id).type === "checkbox" ? at(id).checked : at(id).value)])); }
  function write(values) {
    for (const id of SETTINGS) if (at(id).type === "checkbox") at(id).checked = values[id] === "true"; else at(id).value = values[id];
    tell();
    address();
  }
  function address() {
    const text = new URLSearchParams(Object.entries(read()).filter(([id, value]) => value !== own[id])).toString();
    history.replaceState(null, "", location.pathname + location.search + (text && "#" + text));
    at("copyLink").textContent = "Copy a link with these settings";
  }

  const whole = id => Math.trunc(Number(at(id).value)) || 0;
  function fields(video) {
    const given = { hypotheses: whole("hypotheses"), steps: whole("steps") || null, seed: whole("seed") };
    for (const id of NUMBERS) if (at(id).value !== "" && at(id).validity.valid) given[id] = Number(at(id).value);
    if (!video && !at("second_look").checked) given.second_look = false;
    return given;
  }
  return { fields, read, write };
}

// A button for each format; request() gives {file, kind, name, body}.
export function createFiles(model, request) {
  const rows = model.formats.map(format => {
    const button = document.createElement("button"), about = document.createElement("span");
    button.dataset.format = format;
    button.append(Object.assign(document.createElement("b"), { textContent: "." + format }), about);
    about.textContent = FORMATS[format] ?? "";
    button.onclick = async () => {
      const { name, body } = request();
      const answer = await work(`Writing .${format}`, async (signal, say) => {
        const response = await call("v1/files/" + format, { body, signal, say });
        return { told: response.headers.get("Content-Disposition") ?? "", blob: await response.blob() };
      });
      if (!answer) return;
      const ending = /\.zip"?$/.test(answer.told) ? `.${format}.zip` : "." + format;
      save(answer.blob, stem(name) + ending);
      live(`Saved ${stem(name)}${ending}`);
    };
    return button;
  });
  at("formats").replaceChildren(...rows);
  return video => rows.forEach(row => { row.hidden = video && ONE_PICTURE.includes(row.dataset.format); });
}

// Without https a page has no clipboard.
function copyByHand(text) {
  const field = Object.assign(document.createElement("textarea"), { value: text });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  at("copyLink").focus();
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export function createTheme(changed) {
  const root = document.documentElement, button = at("themeButton");
  const show = () => {
    const [sign, words] = THEMES[root.dataset.theme ?? ""];
    button.textContent = sign;
    button.setAttribute("aria-label", `Theme: ${words}. Press for another.`);
  };
  const next = () => {
    const names = Object.keys(THEMES), name = names[(names.indexOf(root.dataset.theme ?? "") + 1) % names.length];
    if (name) root.dataset.theme = name; else delete root.dataset.theme;
    try { if (name) localStorage.setItem("theme", name); else localStorage.removeItem("theme"); } catch { /* forbidden: for this visit only */ }
    show();
    changed();
  };
  button.onclick = next;
  show();
  return next;
}
