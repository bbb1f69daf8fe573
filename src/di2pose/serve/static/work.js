// One piece of work at a time: what it is, how long it takes, who is before us, and a way to stop it.
import { ServerError, json } from "./api.js";

const at = id => document.getElementById(id);
const LOOK = 1000;                                           // ms between two looks at the queue
let running = null;

export const busy = () => running !== null;
export const cancel = () => running?.abort();
export const live = text => { at("live").textContent = text; };

export function fail(message) {
  at("alertText").textContent = message.charAt(0).toUpperCase() + message.slice(1);
  at("alert").hidden = !message;
}

// job(signal, say) -> its answer; undefined where it was cancelled or failed, and then the page says why.
export async function work(title, job) {
  running?.abort();
  const mine = running = new AbortController(), start = performance.now();
  let queue = "", said = "";
  const show = () => {
    const seconds = Math.floor((performance.now() - start) / 1000);
    at("workText").textContent = (said || title) + (seconds ? ` \u00b7 ${seconds} s` : "") + queue;
  };
  const look = async () => {
    try {
      const { waiting } = await json("v1/health", { signal: mine.signal });
      queue = waiting > 0 ? ` \u00b7 ${waiting} in the queue` : "";
    } catch { /* the work itself tells what is wrong */ }
  };
  const timers = [setInterval(show, 250), setInterval(look, LOOK)];
  fail("");
  live(title);
  document.body.classList.add("busy");
  at("work").hidden = false;
  show();
  try {
    return await job(mine.signal, text => { said = text; show(); });
  } catch (error) {
    if (mine.signal.aborted) { if (running === mine) live("Cancelled"); }
    else if (error instanceof ServerError) fail(error.message);
    else { fail("This page made a mistake: " + error.message); console.error(error); }
    return undefined;
  } finally {
    timers.forEach(clearInterval);
    if (running === mine) {
      running = null;
      at("work").hidden = true;
      document.body.classList.remove("busy");
    }
  }
}

at("cancel").onclick = cancel;
addEventListener("pagehide", cancel);
at("alertClose").onclick = () => fail("");
