// The picture or video itself: what kind it is, how big, and what to draw of it. It stays in this page's memory.

const VIDEO = /\.(mp4|m4v|mov|mkv|webm|avi)$/i;
const SHOWN = 2560;                                          // px of the longer side
const PATIENCE = 5000;                                       // ms for the first frame of a video
const MB = 1e6, FORM = 20000;                                // bytes that a request has beside its file

export const kindOf = file => file.type.startsWith("video/") || (!file.type && VIDEO.test(file.name)) ? "video" : "photo";
export const stem = name => name.replace(/\.[^.]*$/, "") || name;

const BLIND = "This browser cannot show this file; the server may read it all the same.";

// {file, kind, name, size or null, picture(k, ready), close()}; `note`: what the user should know about it.
// A file that the browser cannot show is sent all the same: the server may know the format.
export async function openMedia(file, limits, timeOf) {
  const kind = kindOf(file), url = URL.createObjectURL(file), close = () => URL.revokeObjectURL(url);
  if (kind === "video") {
    const video = await loadVideo(url), size = video && [video.videoWidth, video.videoHeight];
    return { file, kind, name: file.name, size, duration: video?.duration, video, note: video ? "" : BLIND, picture: (k, ready) => video && seek(video, timeOf(k), ready), close };
  }
  const image = await loadImage(url), size = image && [image.naturalWidth, image.naturalHeight];
  const shown = image && screenful(image, size), small = image && await shrink(file, image, limits);
  const note = !image ? BLIND : small ? `The picture was made smaller to fit this server: ${small.size.join(" \u00d7 ")} pixels.` : "";
  return { file: small?.file ?? file, kind, name: file.name, size: small?.size ?? size, note, picture: () => shown, close };
}

async function loadImage(url) {
  const image = new Image();
  image.src = url;
  try { await image.decode(); return image; } catch { return null; }
}

// Large photos are made smaller once, not each time that they are drawn.
function screenful(image, [width, height]) {
  const factor = SHOWN / Math.max(width, height);
  return factor >= 1 ? image : painted(image, [width, height].map(side => Math.round(side * factor)));
}

function loadVideo(url) {
  const video = document.createElement("video");
  Object.assign(video, { muted: true, playsInline: true, preload: "auto", src: url });
  return new Promise(resolve => {
    video.onloadeddata = () => resolve(video.videoWidth ? video : null);
    video.onerror = () => resolve(null);
    setTimeout(() => resolve(video.videoWidth ? video : null), PATIENCE);
  });
}

// The video at a time, as soon as it is there; while it seeks, the frame before.
function seek(video, time, ready) {
  if (!video.seeking && video.wanted !== time) {
    video.wanted = time;                                     // not currentTime, which stays behind past the end
    video.onseeked = ready;
    video.currentTime = time;
  }
  return video.readyState >= 2 ? video : null;
}

// Pictures above the server's limits are made smaller here; null where they fit.
async function shrink(file, image, { bytes, pixels }) {
  const all = image.naturalWidth * image.naturalHeight;
  if (file.size <= bytes - FORM && all <= pixels) return null;
  const factor = Math.min(1, Math.sqrt(0.98 * pixels / all), 4096 / Math.max(image.naturalWidth, image.naturalHeight));
  const size = [image.naturalWidth, image.naturalHeight].map(side => Math.max(1, Math.floor(side * factor)));
  return { size, file: await jpeg(image, size, file.name) };
}

function painted(source, size) {
  const canvas = Object.assign(document.createElement("canvas"), { width: size[0], height: size[1] });
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff"; pen.fillRect(0, 0, ...size);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(source, 0, 0, ...size);
  return canvas;
}

export async function jpeg(source, size, name) {
  const blob = await new Promise(resolve => painted(source, size).toBlob(resolve, "image/jpeg", 0.92));
  return new File([blob], stem(name) + ".jpg", { type: "image/jpeg" });
}

// The camera as a photo that changes: take() makes its present frame the picture, and the file.
export async function openCamera(stream) {
  const video = Object.assign(document.createElement("video"), { srcObject: stream, muted: true, playsInline: true });
  await video.play();
  const media = { kind: "photo", name: "camera.jpg", note: "", picture: () => media.still, close: () => stream.getTracks().forEach(track => track.stop()) };
  media.take = async () => {
    const size = [video.videoWidth, video.videoHeight], still = painted(video, size);
    const blob = await new Promise(resolve => still.toBlob(resolve, "image/jpeg", 0.85));
    return { size, still, file: new File([blob], media.name, { type: "image/jpeg" }) };
  };
  return Object.assign(media, await media.take());
}

// Why a file cannot be sent at all; empty where it can.
export function refused(file, limits) {
  if (file.size === 0) return "The file is empty.";
  if (kindOf(file) !== "video" || file.size <= limits.video_bytes - FORM) return "";
  return `The video has ${(file.size / MB).toFixed(0)} MB; this server takes ${(limits.video_bytes / MB).toFixed(0)} MB: cut it shorter.`;
}
