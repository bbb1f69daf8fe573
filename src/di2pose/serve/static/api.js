// The server: the one place that knows the token, what errors look like, and when to try again.

export class ServerError extends Error {
  constructor(message, status, code) { super(message); this.status = status; this.code = code; }
}

const RETRIES = 8, LONGEST_WAIT = 20;
const given = new URLSearchParams(location.hash.slice(1));
let token = given.get("token") ?? "";
given.delete("token");
if (token) history.replaceState(null, "", location.pathname + (given.size ? "#" + given : ""));   // not for the address bar or the history
const authorised = () => token ? { Authorization: "Bearer " + token } : {};

// Asks the user for a token; set by app.js. Resolves to null when they do not want to.
let askToken = async () => null;
export const onToken = ask => { askToken = ask; };

const pause = (seconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, 1000 * seconds);
  signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
});

// A multipart form: the file under `image` or `video`, every other field as JSON.
export function form(file, kind, fields) {
  const body = new FormData();
  body.append(kind === "video" ? "video" : "image", file, file.name ?? "picture");
  for (const [key, value] of Object.entries(fields)) if (value !== undefined) body.append(key, JSON.stringify(value));
  return body;
}

// The answer to a request; asks for the token where one is needed and comes again where the server is busy.
// `path` is relative to the page, which a proxy may serve under a path of its own.
export async function call(path, { body, signal, say = () => {} } = {}) {
  for (let turn = 0, refused = false; ; turn++) {
    const headers = authorised();
    let answer;
    try {
      answer = await fetch(path, { method: body ? "POST" : "GET", body, headers, signal, cache: "no-store" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ServerError("The server does not answer. Is di2pose serve still running?", 0, "unreachable");
    }
    if (answer.ok) return answer;
    const { message, code } = await trouble(answer);
    if (answer.status === 401) {
      const given = await askToken(refused || token !== "");
      if (given === null) throw new ServerError(message, 401, code);
      token = given; refused = true;
    } else if (code === "busy" && turn < RETRIES) {
      const wait = Math.min(LONGEST_WAIT, Number(answer.headers.get("Retry-After")) || 1);
      say(`The server is busy: trying again in ${Math.ceil(wait)} s`);
      await pause(wait, signal);
      say("");
    } else throw new ServerError(message, answer.status, code);
  }
}

export const json = async (path, options) => (await call(path, options)).json();

// The result of a job; `progress` is called with its reports, `coming` with frames as they are estimated. Where it is
// given up, the server is told.
export async function job(body, { signal, say, progress, coming }) {
  const { id } = await json("v1/jobs", { body, signal, say }), path = "v1/jobs/" + id;
  try {
    for (let state = ""; state !== "done"; ) {
      for await (const [name, report] of events(await call(path + "/events", { signal }), signal)) {
        if (name === "frame") { coming(report); continue; }
        if (report.error) throw new ServerError(report.error.message, 0, report.error.code);
        ({ state } = report);
        progress(report);
      }
      if (state !== "done") await pause(1, signal);            // a proxy ended the stream
    }
    return await json(path + "/result", { signal });
  } finally {
    fetch(path, { method: "DELETE", headers: authorised(), keepalive: true }).catch(() => {});
  }
}

async function* events(answer, signal) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    const { done, value } = await reader.read().catch(error => { signal.throwIfAborted(); return { done: true }; });
    if (done) return;
    const whole = (text + value).split("\n\n");
    text = whole.pop();
    for (const each of whole) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(each) ?? [];
      if (data) yield [name, JSON.parse(data)];
    }
  }
}

async function trouble(answer) {
  try {
    const { error } = await answer.json();
    if (error?.message) return error;
  } catch { /* not ours: a proxy's page, for instance */ }
  return { code: "unknown", message: `The server answered ${answer.status} ${answer.statusText}` };
}
