// Ways in for a picture: file chooser, drop, paste, camera, examples. Each ends in open(file).
import { call, json } from "./api.js";
import { fail } from "./work.js";

const at = id => document.getElementById(id);

export function createIntake(open, openLive) {
  const taken = files => {
    const file = [...files].find(f => /^(image|video)\//.test(f.type)) ?? files[0];
    if (file) open(file);
  };

  at("choose").onclick = () => at("file").click();
  at("file").onchange = event => { taken(event.target.files); event.target.value = ""; };

  // Anywhere on the page: a picture that misses the zone would otherwise replace the page.
  let depth = 0;
  const over = change => { depth = Math.max(0, depth + change); document.body.classList.toggle("over", depth > 0); };
  document.addEventListener("dragenter", event => { event.preventDefault(); over(1); });
  document.addEventListener("dragleave", () => over(-1));
  document.addEventListener("dragover", event => event.preventDefault());
  document.addEventListener("drop", event => {
    event.preventDefault();
    depth = 0; over(0);
    if (event.dataTransfer.files.length) taken(event.dataTransfer.files);
    else fail("That is no file: drop a photo or a video from your computer, or copy the picture and paste it here.");
  });
  document.addEventListener("paste", event => {
    if (event.clipboardData.files.length) { event.preventDefault(); taken(event.clipboardData.files); }
  });

  camera(open, openLive);
  at("cameraButton").hidden = !navigator.mediaDevices?.getUserMedia;
  examples(open);
}

function camera(open, openLive) {
  const dialog = at("camera"), video = at("cameraVideo");
  let stream = null, facing = "user", timer = null;
  const release = () => { stream?.getTracks().forEach(track => track.stop()); stream = video.srcObject = null; clearInterval(timer); at("shootLater").textContent = "In 3 seconds"; };
  async function start() {
    release();
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: facing, width: { ideal: 1280 }, height: { ideal: 960 } } });
    } catch (error) {
      dialog.close();
      return fail(error.name === "NotAllowedError" ? "The browser does not let this page use the camera: allow it beside the address, or choose a file."
        : "No camera was found. Choose a file instead.");
    }
    if (!dialog.open) return release();                      // it was closed while the browser asked
    video.srcObject = stream;
    await video.play();
  }
  function shoot() {
    if (!video.videoWidth) return;
    const still = Object.assign(document.createElement("canvas"), { width: video.videoWidth, height: video.videoHeight });
    still.getContext("2d").drawImage(video, 0, 0);
    dialog.close();
    still.toBlob(blob => open(new File([blob], "camera.jpg", { type: "image/jpeg" })), "image/jpeg", 0.93);
  }
  at("cameraButton").onclick = () => { dialog.showModal(); start(); };
  at("flip").onclick = () => { facing = facing === "user" ? "environment" : "user"; start(); };
  at("shoot").onclick = shoot;
  at("shootLater").onclick = () => {
    let left = 3;
    clearInterval(timer);
    const tick = () => { at("shootLater").textContent = left ? left + " \u2026" : "In 3 seconds"; if (!left--) { clearInterval(timer); shoot(); } };
    tick();
    timer = setInterval(tick, 1000);
  };
  at("goLive").onclick = () => {
    if (!video.videoWidth) return;
    const taken = stream;
    stream = null;                                           // it goes on
    dialog.close();
    openLive(taken);
  };
  at("cameraClose").onclick = () => dialog.close();
  dialog.addEventListener("close", release);
}

async function examples(open, wait = 2000) {
  let list = [];
  try { list = await json("v1/examples"); } catch { return; /* no examples, then */ }
  // A new service is still fetching them: ask again after 2, 4, ... 32 seconds.
  if (!list.length && wait <= 32000) setTimeout(() => examples(open, 2 * wait), wait);
  for (const { name, title } of list) {
    let file;
    try {
      const blob = await (await call("v1/examples/" + encodeURIComponent(name))).blob();
      file = new File([blob], name, { type: blob.type });
    } catch { continue; }
    const button = document.createElement("button"), image = new Image();
    image.src = URL.createObjectURL(file);
    image.alt = "";
    button.append(image, Object.assign(document.createElement("span"), { textContent: title }));
    button.onclick = () => open(file);
    at("exampleList").append(button);
    at("examples").hidden = false;
  }
}
