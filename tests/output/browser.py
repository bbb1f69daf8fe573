"""A real headless Chromium, driven through ChromeDriver's W3C protocol over plain HTTP."""

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
FLAGS += ["--hide-scrollbars", "--force-device-scale-factor=1"]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference to an element
KEYS = {"ctrl": "\ue009", "shift": "\ue008", "tab": "\ue004",
        "left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015"}


class Browser:
    """One window. Scripts are function bodies; coordinates are CSS pixels of the window."""

    def __init__(self, profile: Path, flags=()):
        self.driver = subprocess.Popen(
            [CHROMEDRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"LANG": "C"}
        )
        ready = next(m for line in self.driver.stdout if (m := re.search(rb"successfully on port (\d+)", line)))
        self.root = f"http://127.0.0.1:{int(ready[1])}/session"
        options = {"binary": CHROMIUM, "args": [*FLAGS, *flags, f"--user-data-dir={profile}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.root += "/" + self.call("", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def call(self, path, body=None, method="POST"):
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.root + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def close(self):
        self.call("", method="DELETE")
        self.driver.terminate()
        self.driver.wait()
        self.driver.stdout.close()

    def open(self, page: Path | str, width=1400, height=900, dark=False, phone=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
        likes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in likes.items()]
        self.devtools("Emulation.setEmulatedMedia", {"features": features})
        self.call("/url", {"url": page if isinstance(page, str) else page.as_uri()})

    def devtools(self, command, parameters):
        return self.call("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def run(self, script, *arguments):
        return self.call("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script):
        """Run a script that calls `arguments[0]` when something has happened."""
        return self.call("/execute/async", {"script": script, "args": []})

    def drag(self, start, end, kind="mouse"):
        steps = [_move(*start), {"type": "pointerDown", "button": 0}]
        steps += [_move(*[a + (b - a) * k / 4 for a, b in zip(start, end, strict=True)]) for k in (1, 2, 3, 4)]
        self._act([_pointer("one", kind, [*steps, {"type": "pointerUp", "button": 0}])])

    def hover(self, at):
        self._act([_pointer("one", "mouse", [_move(*at)])])

    def pinch(self, middle, before, after):
        """Two fingers, `before` px from the middle each, then `after`."""
        fingers = []
        for name, sign in (("one", -1), ("two", 1)):
            at = [_move(middle[0] + sign * d, middle[1]) for d in (before, (before + after) / 2, after)]
            down, up = {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}
            fingers.append(_pointer(name, "touch", [at[0], down, at[1], at[2], up]))
        self._act(fingers)

    def scroll(self, at, pixels):
        x, y = map(round, at)
        step = {"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": pixels, "duration": 0}
        self._act([{"type": "wheel", "id": "wheel", "actions": [step]}])

    def press(self, *keys):
        strokes = [{"type": kind, "value": KEYS.get(k, k)} for k in keys for kind in ("keyDown", "keyUp")]
        self._act([{"type": "key", "id": "keys", "actions": strokes}])

    def chord(self, *keys):
        """Keys that are held together."""
        ways = (("keyDown", keys), ("keyUp", keys[::-1]))
        strokes = [{"type": kind, "value": KEYS.get(k, k)} for kind, order in ways for k in order]
        self._act([{"type": "key", "id": "keys", "actions": strokes}])

    def find(self, selector):
        return self.call("/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call(f"/element/{self.find(selector)}/click")

    def type(self, selector, text):
        """Into a field; the path of a file into a file chooser."""
        self.call(f"/element/{self.find(selector)}/value", {"text": text})

    def messages(self):
        """What the console said since the last call."""
        return [entry["message"] for entry in self.call("/se/log", {"type": "browser"})]

    def screenshot(self, path: Path):
        path.write_bytes(base64.b64decode(self.call("/screenshot", method="GET")))

    def _act(self, actions):
        self.call("/actions", {"actions": actions})
        self.call("/actions", method="DELETE")


def _move(x, y):
    return {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y), "origin": "viewport"}


def _pointer(name, kind, steps):
    return {"type": "pointer", "id": name, "parameters": {"pointerType": kind}, "actions": steps}
