"""The page of `di2pose serve` in a real headless Chromium, with the packaged model behind it: every feature, at desk
and phone width. DI2POSE_SHOTS=FOLDER keeps a picture of the end of each test."""

import base64
import io
import os
import re
from contextlib import closing
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from output.browser import CHROMEDRIVER, CHROMIUM, Browser
from PIL import Image
from serve.proxy import behind_nginx
from serve.running import running, until
from video.films import write_film

from di2pose.assets import extract
from di2pose.data.demo_footage import CLIP, FRAME, REGION
from di2pose.data.frames import Video
from di2pose.pose.skeleton import H36M_17
from di2pose.result import Result
from di2pose.serve.limits import Limits
from di2pose.serve.media import Examples, formats

pytest.importorskip("starlette", reason="the page needs the extra serve")
TOKEN = "a-secret"
DESK, PHONE = {"width": 1400, "height": 900}, {"width": 360, "height": 780, "phone": True}
SIZE = (325, 265)
"""Of the test pictures, pixels."""
FRAMES = 4
ANSWERS = "Number(document.getElementById('stage').dataset.answers ?? 0)"
TEXT = "document.getElementById('{}').textContent"
TABLE = "return [...document.querySelectorAll('#rows tr')].map(r => [...r.cells].map(c => c.textContent))"
PLACES = "return document.getElementById('{}').places"
BOX = "const b = document.getElementById(arguments[0]).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
FILE = """const [name, type, data] = arguments, bytes = Uint8Array.from(atob(data), c => c.charCodeAt(0));
const box = new DataTransfer(); box.items.add(new File([bytes], name, { type }));"""
DROP = FILE + "document.dispatchEvent(new DragEvent('drop', { dataTransfer: box, bubbles: true, cancelable: true }))"
PASTE = FILE + "document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: box, bubbles: true }))"
SET = """const [id, value] = arguments, field = document.getElementById(id);
if (field.type === 'checkbox') field.checked = value; else field.value = value;
for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, { bubbles: true }))"""
ASKED = "return performance.getEntriesByType('resource').filter(e => e.name.endsWith('v1/predict')).map(e => \
    [e.startTime, e.responseEnd])"
FOCUS = "return document.activeElement.id"
ZOOM = "return Number(document.getElementById('photo').dataset.zoom)"
CONTRAST = """const rgba = text => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
};
const over = (top, under) => top.slice(0, 3).map((v, k) => v * top[3] + under[k] * (1 - top[3]));
const light = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
const back = e => e ? over(rgba(getComputedStyle(e).backgroundColor), back(e.parentElement)) : [255, 255, 255];
const ratio = e => {
    let share = 1, under = back(e);
    for (let up = e; up; up = up.parentElement) share *= getComputedStyle(up).opacity;
    const [red, green, blue, alpha] = rgba(getComputedStyle(e).color);
    const a = light(over([red, green, blue, alpha * share], under)), b = light(under);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};
const texts = [...document.querySelectorAll('body *')].filter(e => e.checkVisibility()
    && !e.closest(':disabled, .quiet, option')
    && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
return texts.map(e => [e.outerHTML.slice(0, 80), ratio(e)])"""
WIDE = """return [document.documentElement.scrollWidth, ...[...document.querySelectorAll('section, header, .notes > *')]
    .filter(e => e.offsetParent).map(e => e.getBoundingClientRect().right)]"""


@pytest.fixture(scope="module")
def closed(model):
    """A service that asks for a token, and takes small pictures."""
    with running(model, Limits(pixels=320_000), token=TOKEN) as service:
        yield service


@pytest.fixture(scope="module")
def site(closed):
    return f"http://127.0.0.1:{closed.port}/"


@pytest.fixture(scope="module")
def frames():
    """The walker in some frames of a real video."""
    with closing(Video(extract("sports2d-demo", CLIP) / CLIP)) as video:
        return [video.frame(FRAME + k).crop(REGION).resize(SIZE) for k in range(FRAMES)]


@pytest.fixture(scope="module")
def walker(frames):
    return jpeg(frames[0])


@pytest.fixture(scope="module")
def browser(frames, tmp_path_factory):
    if CHROMIUM is None or CHROMEDRIVER is None:
        pytest.skip("no chromium and chromedriver: apt-get install chromium chromium-driver")
    film = tmp_path_factory.mktemp("camera") / "walker.mjpeg"
    film.write_bytes(jpeg(frames[0].resize((640, 480))) * 2)
    camera = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    browser = Browser(tmp_path_factory.mktemp("profile"), [*camera, f"--use-file-for-fake-video-capture={film}"])
    browser.call("/timeouts", {"script": 55_000})
    yield browser
    browser.close()


class Page:
    """The page in the browser."""

    def __init__(self, browser, site):
        self.browser, self.site = browser, site
        self.run, self.click, self.press = browser.run, browser.click, browser.press

    def open(self, token=TOKEN, link="", **look):
        self.browser.open("about:blank")  # a fragment alone would not load the page again
        self.browser.open(self.site + (f"#token={token}{link}" if token else ""), **(look or DESK))
        if token:
            self.until("document.getElementById('limits').textContent")
        return self

    def until(self, condition):
        look = f"if ({condition}) done(true); else setTimeout(look, 40);"
        self.browser.wait(f"const done = arguments[0], look = () => {{ {look} }}; look()")

    def answer(self, act):
        """Do something, and wait for the server's answer to be shown."""
        before = self.run(f"return {ANSWERS}")
        act()
        self.until(f"{ANSWERS} > {before} && !document.body.classList.contains('busy')")

    def drop(self, content, name="walker.jpg", kind="image/jpeg", quick=True):
        """A picture, answered; `quick`: by one hypothesis and one look."""
        if quick:
            self.run(SET, "hypotheses", 1)
            self.run(SET, "second_look", False)
        self.answer(lambda: self.run(DROP, name, kind, base64.b64encode(content).decode()))
        return self

    def set(self, name, value):
        self.run(SET, name, value)

    def text(self, name):
        return self.run("return " + TEXT.format(name))

    def tab(self, name):
        self.run("document.getElementById(arguments[0]).click()", f"tab-{name}")

    def joint(self, name):
        """Row of the table: x, y, z, radius (mm), state."""
        row = next(row for row in self.run(TABLE) if row[0] == name.replace("_", " "))
        return [float(cell.replace("\u2212", "-")) for cell in row[1:5]], row[5]

    def spot(self, canvas, name):
        """Where a joint is in the window."""
        left, top, _, _ = self.run(BOX, canvas)
        x, y = self.run(PLACES.format(canvas))[H36M_17.index(name)]
        return left + x, top + y

    def on_photo(self, x, y):
        """A place of the photo, in shares of its width and height, in the window."""
        left, top, width, height = self.run(BOX, "photo")
        return left + x * width, top + y * height

    def draw(self, x0, y0, x1, y1, kind="mouse"):
        self.browser.drag(self.on_photo(x0, y0), self.on_photo(x1, y1), kind)

    def fits(self, width=360):
        assert max(self.run(WIDE)) <= width + 0.5


@pytest.fixture
def page(browser, site, request):
    yield Page(browser, site)
    if folder := os.environ.get("DI2POSE_SHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser.screenshot(Path(folder) / f"{request.node.name}.png")
    # A refused request (401, 422) is an error to the browser, too; the page tells it in words.
    assert [message for message in browser.messages() if "the server responded with a status of 4" not in message] == []
    assert set(browser.run("return Object.keys(localStorage)")) <= {"theme"}
    browser.run("localStorage.clear()")


def jpeg(picture):
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=90)
    return data.getvalue()


def test_a_dropped_photo_becomes_a_pose_to_turn(page, walker):
    page.open()
    page.drop(walker, quick=False)
    assert page.text("subtitle").startswith("walker.jpg · 1 person · 8 hypotheses")
    assert len(page.run(PLACES.format("view"))) == 21
    on_photo, x0 = np.array(page.run(PLACES.format("photo"))), page.run(BOX, "photo")
    assert (on_photo > 0).all()
    assert (on_photo < x0[2:]).all()
    assert "1 person" in page.text("live")
    before = page.run(PLACES.format("view"))
    assert page.run(FOCUS) == "view"  # the result
    page.press("right", "right")
    assert page.run(PLACES.format("view")) != before
    page.run("document.getElementById('tab-sample').focus()")
    page.press("right")
    assert page.run("return document.activeElement.id") == "tab-joints"
    assert page.run("return document.querySelectorAll('[role=tabpanel]:not([hidden])').length") == 1
    assert page.joint("pelvis")[0][:3] == [0, 0, 0]
    page.tab("angles")
    rows = page.run(TABLE.replace("#rows", "#angles tbody"))
    knee = next(row for row in rows if "knee" in row[0])
    assert all(re.match(r"\u2212?\d+°", cell) for cell in knee[1:3])  # left against right


def test_keys_help_theme_and_names(page):
    page.open().press("?")
    assert page.run("return document.getElementById('help').open")
    page.press("\ue00c")
    background = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(background)
    page.press("t", "t")
    assert page.run("return localStorage.getItem('theme')") == "dark"
    assert page.run(background) != light
    nameless = """return [...document.querySelectorAll('button, select, input, canvas, section, dialog')].filter(
        e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)"""
    assert page.run(nameless) == []
    page.open()
    assert page.run("return document.documentElement.dataset.theme") == "dark"


def test_every_control_is_reached_by_the_tab_key_and_every_text_has_contrast(page, walker):
    for dark in (False, True):
        page.open(**DESK, dark=dark)
        shown = page.run(CONTRAST)
        page.drop(walker)
        for tab in ("joints", "angles", "reveal", "lab", "files", "sample"):
            page.tab(tab)
            shown += page.run(CONTRAST)
        page.run(DROP, "empty.jpg", "image/jpeg", "")
        page.press("?")
        shown += page.run(CONTRAST)
        page.press("\ue00c")
        assert len(shown) > 300
        assert [each for each in shown if each[1] < 4.5] == []
    page.run("""window.seen = new Map(); document.addEventListener('focusin',
        e => window.seen.set(e.target, getComputedStyle(e.target).outlineStyle))""")
    page.browser.press(*["tab"] * 60)
    missed = """return [...document.querySelectorAll('button, input, select, canvas, summary, a')].filter(
        e => e.checkVisibility() && e.tabIndex >= 0 && !e.disabled && (window.seen.get(e) ?? 'none') === 'none').map(
        e => e.outerHTML)"""
    assert page.run(missed) == []


def test_the_photo_is_large_and_is_zoomed_and_moved(page, walker):
    page.open(width=1920, height=1080).drop(walker)
    assert page.run(BOX, "photo")[2] > 1000
    page.open().drop(walker)
    assert page.run(BOX, "photo")[2] >= 640
    at, corner, scale = page.spot("photo", "left_wrist"), page.on_photo(0, 0), page.run(BOX, "photo")[2] / SIZE[0]
    page.browser.scroll(at, -700)
    zoom = page.run(ZOOM)
    assert 2 < zoom < 4
    np.testing.assert_allclose(page.spot("photo", "left_wrist"), at, atol=1)
    page.browser.drag((at[0] + 90, at[1]), (at[0] + 50, at[1] - 60))
    moved = page.spot("photo", "left_wrist")
    np.testing.assert_allclose(moved, (at[0] - 40, at[1] - 60), atol=1)
    page.run("""const send = fetch;
        window.fetch = (to, how) => { window.sent = how?.body ?? window.sent; return send(to, how); }""")
    page.click("[data-tool=hide]")  # a rectangle is where it is drawn
    page.answer(lambda: page.browser.drag((moved[0] - 60, moved[1] - 60), (moved[0] + 60, moved[1] + 60)))
    x0, y0, x1, y1 = page.run("return JSON.parse(window.sent.get('occluded'))[0]")
    np.testing.assert_allclose([(x0 + x1) / 2, (y0 + y1) / 2], (np.array(at) - corner) / scale, atol=0.5)
    np.testing.assert_allclose([x1 - x0, y1 - y0], 120 / scale / zoom, atol=0.5)
    page.run("document.getElementById('photo').dispatchEvent(new MouseEvent('dblclick'))")
    assert page.run(ZOOM) == 1
    page.click("#lensIn")
    page.run("document.getElementById('photo').focus()")
    page.press("+", "-", "+")
    assert page.run(ZOOM) == pytest.approx(1.4**2)
    before = page.spot("photo", "pelvis")
    page.press("left")
    assert page.spot("photo", "pelvis")[0] > before[0]
    page.click("#lensFit")
    assert page.run(ZOOM) == 1


def test_changes_are_asked_once_undone_and_kept_in_the_address(page, closed, walker):
    page.open(link="&hypotheses=3&second_look=false&seed=2").drop(walker, quick=False)
    assert "3 hypotheses" in page.text("subtitle")
    assert "seed 2" in page.text("subtitle")
    assert page.run("return location.hash") == "#hypotheses=3&seed=2&second_look=false"
    before, asked = page.run(TABLE), len(page.run(ASKED))
    several = SET + "\nfor (const more of [5, 4, 2]) { field.value = more; field.dispatchEvent(new Event('change')); }"
    page.run("document.getElementById('hypotheses').focus()")
    page.answer(lambda: page.run(several, "hypotheses", 6))
    assert len(page.run(ASKED)) == asked + 1
    assert page.run(FOCUS) == "hypotheses"
    after = page.run(TABLE)
    page.click("[data-tool=hide]")
    page.answer(lambda: page.draw(0.05, 0.6, 0.95, 0.98))
    page.answer(lambda: page.browser.chord("ctrl", "z"))
    assert (page.run(TABLE), page.text("rectChips")) == (after, "")
    page.answer(lambda: page.click("#undo"))
    assert (page.run(TABLE), page.text("hypothesesOut")) == (before, "3")
    assert page.run("return document.getElementById('undo').ariaDisabled") == "true"
    page.answer(lambda: page.click("#redo"))
    page.answer(lambda: page.browser.chord("ctrl", "shift", "z"))
    assert page.text("rectChips") == "hidden region×"
    assert len(page.run(ASKED)) == asked + 2  # what was answered is not asked again
    answers, asked = page.run(f"return {ANSWERS}"), len(page.run(ASKED))
    with closed.held():
        page.click("#resample")
        closed.wait_for(1)
        page.set("steps", 3)  # takes the place of what waits
        page.until(f"(() => {{ {ASKED} }})().length > {asked}")
    page.until(f"{ANSWERS} > {answers}")
    assert "3 steps" in page.text("subtitle")
    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.browser.devtools("Browser.grantPermissions", allowed)
    page.click("#copyLink")
    page.until("document.getElementById('live').textContent === 'Link copied'")
    copied = page.browser.wait("const done = arguments[0]; navigator.clipboard.readText().then(done)")
    assert copied == page.site + "#hypotheses=2&steps=3&seed=2&second_look=false"


def test_the_camera_runs_live_with_one_frame_in_flight(page):
    page.open().click("#cameraButton")
    page.until("document.getElementById('cameraVideo').videoWidth > 0")
    page.click("#goLive")
    page.until(f"{ANSWERS} >= 3")
    assert re.fullmatch(r"Live · \d+\.\d frames a second", page.text("liveText"))
    page.answer(lambda: page.click("#liveStop"))
    times = page.run(ASKED)
    assert len(times) >= 4
    assert all(end <= start for (_, end), (start, _) in pairwise(times[:-1]))
    assert page.text("subtitle").startswith("camera.jpg · 1 person · 8 hypotheses")
    page.click("[data-tool=hide]")


def test_paste_chooser_camera_and_examples_are_ways_in(page, walker, tmp_path):
    page.open().set("hypotheses", 1)
    page.set("second_look", False)
    page.answer(lambda: page.run(PASTE, "image.png", "image/jpeg", base64.b64encode(walker).decode()))
    assert page.text("subtitle").startswith("image.png · 1 person")
    page.click("#restart")
    assert not page.run("return document.getElementById('start').hidden")
    (tmp_path / "<img src=x onerror=console.error(1)>.jpg").write_bytes(walker)
    page.answer(lambda: page.browser.type("#file", str(next(tmp_path.iterdir()))))
    assert page.text("subtitle").startswith("<img src=x onerror=console.error(1)>.jpg · 1 person")
    page.click("#restart")
    page.click("#cameraButton")
    page.until("document.getElementById('cameraVideo').videoWidth > 0")
    page.answer(lambda: page.click("#shoot"))
    assert page.text("subtitle").startswith("camera.jpg · 1 person")
    assert page.run("return document.getElementById('cameraVideo').srcObject") is None
    page.click("#restart")
    names = page.run("return [...document.querySelectorAll('#exampleList span')].map(e => e.textContent)")
    assert "a walker" in names
    page.answer(lambda: page.click("#exampleList button:nth-child(2)"))
    assert page.text("subtitle").startswith("walker-hidden · 1 person")
    assert "made smaller" in page.text("mediaNote")  # 650 x 530 pixels are too many here


def test_examples_of_a_new_service_come_without_a_reload(page, monkeypatch):
    found, asked = Examples.all, []

    def later(examples):
        asked.append(1)
        return found(examples) if len(asked) > 1 else {}

    monkeypatch.setattr(Examples, "all", later)
    page.open().until("document.querySelector('#exampleList button')")


def test_sliders_and_seed_draw_anew_and_a_hidden_region_is_not_looked_at(page, walker):
    page.open().drop(walker)
    first = page.run(TABLE)
    page.answer(lambda: page.set("hypotheses", 3))
    page.answer(lambda: page.set("steps", 6))
    assert " · 3 hypotheses · 6 steps · seed 0" in page.text("subtitle")
    page.answer(lambda: page.press("n"))
    assert "seed 1" in page.text("subtitle")
    assert page.run(TABLE) != first
    page.set("auto", False)
    page.set("hypotheses", 1)
    page.set("steps", int(re.search(r"(\d+) steps", page.text("subtitle"))[1]) - 2)
    page.set("seed", 0)
    assert "Resample" in page.text("live")
    page.answer(lambda: page.click("#resample"))
    assert page.run(TABLE) == first
    page.set("auto", True)
    assert {page.joint(name)[1] for name in ("left_knee", "right_knee", "head")} == {"visible"}
    page.click("[data-tool=hide]")
    page.answer(lambda: page.draw(0.05, 0.6, 0.95, 0.98))
    assert page.joint("left_knee")[1] == page.joint("right_knee")[1] == "occluded"
    assert page.joint("head")[1] == "visible"
    page.answer(lambda: page.click("#rectChips .chip"))
    assert page.joint("left_knee")[1] == "visible"
    page.press("h")  # by keys alone
    page.press("down", "down", "right", "left")
    page.answer(lambda: page.press("\ue007"))
    assert page.text("rectChips") == "hidden region×"


def test_a_joint_is_dragged_clicked_let_go_and_taken_back(page, walker):
    page.open().drop(walker)
    if page.run("return document.querySelector('[data-tool=pin]').getAttribute('aria-pressed')") == "false":
        page.press("p")
    (x, y, z, _), _ = page.joint("left_wrist")
    at = page.spot("photo", "left_wrist")
    page.answer(lambda: page.browser.drag(at, (at[0] + 24, at[1] - 36)))
    (x1, y1, z1, _), state = page.joint("left_wrist")
    assert state == "pinned"
    assert 60 < x1 - x < 250  # the walker is some 1.7 m and 400 px tall
    assert x1 - x == pytest.approx(-24 / 36 * (y1 - y), abs=4)
    assert z1 == pytest.approx(z, abs=1.5)
    moved = page.spot("photo", "left_wrist")
    assert np.hypot(moved[0] - at[0] - 24, moved[1] - at[1] + 36) < 16  # where they stand is estimated anew
    assert page.text("pinChips") == "left wrist×"
    at = page.spot("view", "right_ankle")
    page.answer(lambda: page.browser.drag(at, (at[0] - 20, at[1] - 30)))  # in the 3D view
    assert page.joint("right_ankle")[1] == page.joint("left_wrist")[1] == "pinned"
    for pinned in (True, False):  # a click holds it, another lets it go
        at = page.spot("photo", "head")
        page.answer(lambda at=at: page.browser.drag(at, at))
        assert (page.joint("head")[1] == "pinned") == pinned
    page.answer(lambda: page.click("#pinChips .chip"))
    assert page.joint("left_wrist")[1] != "pinned"
    page.set("pinJoint", "left_knee")  # and by numbers
    page.set("pinZ", 150)
    page.answer(lambda: page.click("#pinForm button"))
    knee, table = page.joint("left_knee"), page.run(TABLE)
    assert knee[0][2] == pytest.approx(150, abs=1)
    page.set("pinJoint", "left_knee")
    page.set("pinY", -4000)  # out of reach: it goes back to where it was
    page.answer(lambda: page.click("#pinForm button"))
    expected = "Pin taken back (left knee): 'pin.left_knee': must be within 1500 mm of the pelvis"
    assert page.text("alertText").startswith(expected)
    assert (page.run(TABLE), page.text("pinChips")) == (table, "right ankle×left knee×")
    page.answer(lambda: page.set("hypotheses", 2))  # later changes are answered
    assert page.run("return document.getElementById('alert').hidden")


def test_the_page_works_behind_a_proxy_under_a_path(page, tmp_path):
    downloads, folder = tmp_path / "downloads", tmp_path / "nginx"
    folder.mkdir()
    page.browser.devtools("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    with behind_nginx(folder, int(page.site.rstrip("/").rpartition(":")[2]), "/pose/") as port:
        page.site = f"http://127.0.0.1:{port}/pose/"
        page.open().set("hypotheses", 1)
        page.set("second_look", False)
        page.set("grid", 2)
        page.until("document.querySelectorAll('#exampleList button').length > 1")
        page.answer(lambda: page.click("#exampleList button"))
        assert page.text("subtitle").startswith("walker · 1 person")
        page.tab("files")
        page.click("[data-format=json]")
        page.until("document.getElementById('live').textContent === 'Saved walker.json'")
        for act in ("#revealRun", "#heatRun"):
            page.run("document.querySelector(arguments[0]).click()", act)
            page.until("!document.body.classList.contains('busy')")
            assert page.run("return document.getElementById('alert').hidden")
        for name in ("docs", "openapi.json"):
            page.browser.open(page.run(f"return document.querySelector('[href$=\"{name}\"]').href"))
            assert page.run("return location.href") == page.site + name
            assert "/v1/predict" in page.run("return document.body.textContent")


def test_somebody_who_was_missed_gets_a_box(page, frames):
    two = Image.new("RGB", (2 * SIZE[0], SIZE[1]))
    two.paste(frames[0], (0, 0))
    two.paste(frames[3].transpose(Image.Transpose.FLIP_LEFT_RIGHT), (SIZE[0], 0))
    page.open().set("max_people", 1)
    page.drop(jpeg(two))
    assert "1 person" in page.text("subtitle")
    page.set("auto", False)
    page.set("max_people", 8)
    page.set("auto", True)
    other = 0.0 if page.run(PLACES.format("photo"))[0][0] > page.run(BOX, "photo")[2] / 2 else 0.5
    page.click("[data-tool=add]")
    page.answer(lambda: page.draw(other + 0.12, 0.06, other + 0.38, 0.95))
    assert "2 people" in page.text("subtitle")
    people = page.run("return [...document.getElementById('person').options].map(o => o.text)")
    assert people == ["Person 1", "Person 2"]
    one = page.run(TABLE)
    page.press("2")
    assert page.run(TABLE) != one
    # A pin is about one person; the other stays.
    page.press("p")
    at = page.spot("photo", "left_wrist")
    page.answer(lambda: page.browser.drag(at, (at[0] + 10, at[1] + 12)))
    assert page.joint("left_wrist")[1] == "pinned"
    page.press("1")
    assert page.run(TABLE) == one


def test_the_view_is_framed_round_the_main_people_and_everybody_is_a_choice(page, frames):
    picture = frames[0].copy()
    tiny = frames[0].crop((105, 25, 226, 236)).resize((28, 50))
    picture.paste(tiny, (6, 20))
    page.open().set("hypotheses", 2)
    page.set("second_look", False)
    page.drop(jpeg(picture), quick=False)
    assert "2 people" in page.text("subtitle")
    view, pressed = "return {...document.getElementById('view').dataset}", "[aria-pressed=true]#everybody"
    high = []
    for shown in ("1", "2", "1"):
        assert page.run(view)["shown"] == shown
        assert page.run("return document.querySelectorAll(arguments[0]).length", pressed) == int(shown) - 1
        high.append(np.ptp(np.array(page.run(PLACES.format("view"))), axis=0).max())
        page.press("e")
    assert high[0] == high[2] > 0.4 * page.run(BOX, "view")[3]
    assert high[1] < 0.5 * high[0]


def test_reveal_and_lab(page, walker):
    page.open().drop(walker)
    estimate = page.run(PLACES.format("view"))
    page.tab("reveal")
    page.click("#revealRun")
    page.until("!document.getElementById('revealShow').hidden")
    page.press(" ")  # pauses: the button has the focus
    assert page.text("revealPlay") == "Play"
    last = int(page.run("return document.getElementById('revealStep').max"))
    assert last >= 10
    done = []
    for step in (0, last // 2, last):
        page.set("revealStep", step)
        told = re.search(r"(\d+) of (\d+) tokens", page.text("revealText"))
        cells = page.run("return [...document.querySelectorAll('#tokens .cell')].map(c => c.className)")
        assert len(cells) == int(told[2])
        assert sum(c != "cell" for c in cells) == int(told[1])
        done.append(int(told[1]))
    assert done[0] < done[1] < done[2] == int(told[2])
    assert page.run(PLACES.format("view")) != estimate
    page.click("#revealPlay")
    page.until("document.getElementById('revealPlay').textContent === 'Pause'")
    page.click("#revealDone")
    assert page.run(PLACES.format("view")) == estimate
    clean = page.run(TABLE)
    page.tab("lab")
    page.set("patch", 30)
    page.click("#patchTool")
    page.draw(0.2, 0.2, 0.5, 0.55)
    page.until("!document.getElementById('patchText').hidden")
    assert int(re.search(r"by (\d+) mm", page.text("patchText"))[1]) > 0
    assert page.run(TABLE) != clean
    page.click("#patchOff")
    assert page.run(TABLE) == clean
    page.set("grid", 2)
    plain = page.run("return document.getElementById('photo').toDataURL()")
    page.click("#heatRun")
    page.until("!document.getElementById('heatShow').hidden")
    assert page.text("heatText").startswith(f"The worst place moves the joints by {page.text('rampHigh')}")
    assert page.run("return document.getElementById('photo').toDataURL()") != plain
    page.click("#heatOff")
    assert page.run("return document.getElementById('photo').toDataURL()") == plain


def test_files_are_saved(page, closed, walker, tmp_path):
    page.browser.devtools("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.open().drop(walker).tab("files")
    shown = page.run("return [...document.querySelectorAll('#formats button')].map(b => b.dataset.format)")
    assert sorted(shown) == sorted(formats())
    for ending in ("jpg", "json"):
        jobs = []
        with closed.noting_jobs(jobs.append):
            page.click(f"[data-format='{ending}']")
            page.until(f"document.getElementById('live').textContent === 'Saved walker.{ending}'")
            until((tmp_path / f"walker.{ending}").exists)
    assert jobs == []  # the answer that is shown is in memory
    saved = Result.load(tmp_path / "walker.json")
    assert saved.hypotheses == 1
    for j, row in enumerate(page.run(TABLE)):
        numbers = [float(cell.replace("\u2212", "-")) for cell in row[1:4]]
        np.testing.assert_allclose(numbers, saved.people[0].joints_mm[j], atol=0.56)
    Image.open(tmp_path / "walker.jpg").verify()


def test_a_video_plays_and_a_frame_becomes_a_photo(page, frames, tmp_path):
    pictures = [np.asarray(frame.resize((320, 256))) for frame in frames]
    film = write_film(tmp_path / "walk.webm", pictures, rate=10, codec="libvpx")
    page.open()
    page.run("""window.said = []; const text = document.getElementById('workText');
        new MutationObserver(() => window.said.push(text.textContent)).observe(text, { childList: true })""")
    page.drop(film.read_bytes(), "walk.webm", "video/webm")
    assert f"frame {FRAMES} of {FRAMES}" in " ".join(page.run("return window.said"))
    assert page.run("return Number(document.getElementById('stage').dataset.coming)") >= 1  # poses as they come
    assert f"1 person · {FRAMES} frames" in page.text("subtitle")
    first = page.run(TABLE)
    page.set("slider", 3)
    assert page.text("time").startswith("0.30 s")
    assert page.run(TABLE) != first
    page.tab("angles")
    assert page.run("return document.querySelectorAll('#angles svg polyline').length") >= 2
    page.run("document.activeElement.blur()")
    page.press(" ")
    page.until(f"document.getElementById('view').dataset.frame === '{FRAMES - 1}'")
    page.press(" ")
    assert page.run("return document.getElementById('tab-lab').disabled")
    page.set("slider", 2)
    page.answer(lambda: page.press("n"))
    assert page.text("time").startswith("0.20 s")
    page.answer(lambda: page.click("#grabFrame"))
    assert page.text("subtitle").startswith("walk-2.jpg · 1 person")
    assert not page.run("return document.getElementById('tab-lab').disabled")


def test_the_token_is_asked_for_work_is_cancelled_and_errors_are_told(page, walker):
    page.open(token=None)
    page.until("document.getElementById('tokenDialog').open")
    for word in ("wrong", TOKEN):
        page.until("document.getElementById('tokenDialog').open")
        page.browser.type("#token", word)
        page.click("#tokenForm .main")
    page.until("document.getElementById('limits').textContent")
    page.drop(walker)
    page.run("document.getElementById('another').click()")
    page.until("document.body.classList.contains('busy')")
    page.press("\ue00c")
    page.until("!document.body.classList.contains('busy')")
    assert page.text("live") == "Cancelled"
    page.run(DROP, "broken.jpg", "image/jpeg", base64.b64encode(walker[:200]).decode())
    page.until("!document.getElementById('alert').hidden")
    assert len(page.text("alertText")) > 20
    page.click("#alertClose")
    page.run(DROP, "empty.jpg", "image/jpeg", "")
    assert page.text("alertText") == "The file is empty."
    blank = jpeg(Image.new("RGB", SIZE, "grey"))
    page.drop(blank, "blank.jpg")
    assert "Nobody was found. Draw a box" in page.text("alertText")
    assert page.run("return document.querySelector('[data-tool=add]').getAttribute('aria-pressed')") == "true"
    page.open()
    assert page.run("return location.hash") == ""


def test_a_phone_shows_all_of_it(page, walker):
    page.open(**PHONE, dark=True)
    page.fits()
    page.drop(walker)
    page.fits()
    left, top, width, height = page.run(BOX, "photo")
    page.browser.drag((left + 20, top + height - 20), (left + 20, top + 20), kind="touch")
    page.until("scrollY > 100")  # a finger on the photo scrolls the page
    page.run("scrollTo(0, 0)")
    page.browser.pinch((left + width / 2, top + height / 2), 30, 60)
    assert page.run(ZOOM) == pytest.approx(2, abs=0.3)
    before = page.spot("photo", "pelvis")
    page.browser.drag((left + 20, top + 80), (left + 50, top + 110), kind="touch")
    assert page.spot("photo", "pelvis")[0] == pytest.approx(before[0] + 30, abs=1.5)
    page.click("#lensFit")
    page.click("[data-tool=pin]")
    at = page.spot("photo", "right_wrist")
    page.answer(lambda: page.browser.drag(at, (at[0] + 12, at[1] - 20), kind="touch"))
    assert page.joint("right_wrist")[1] == "pinned"
    page.answer(lambda: page.click("#pinChips .chip"))
    page.click("[data-tool=hide]")
    assert page.joint("left_knee")[1] == "visible"
    page.answer(lambda: page.draw(0.1, 0.6, 0.9, 0.95, kind="touch"))
    assert page.joint("left_knee")[1] == "occluded"
    page.fits()
    for tab in ("sample", "joints", "angles", "reveal", "lab", "files"):
        page.tab(tab)
        page.run("document.getElementById('panel').scrollIntoView()")
        if tab == "reveal":
            page.click("#revealRun")
            page.until("!document.getElementById('revealShow').hidden")
        if tab == "lab":
            page.set("grid", 2)
            page.click("#heatRun")
            page.until("!document.getElementById('heatShow').hidden")
        page.fits()
        scrolls = "const e = document.getElementById(arguments[0]); return e.scrollWidth <= e.clientWidth"
        assert page.run(scrolls, f"pane-{tab}"), tab
        assert page.run("return [...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
    page.press("?")
    page.fits()


def test_the_page_loads_nothing_from_elsewhere():
    files = list(resources.files("di2pose.serve").joinpath("static").iterdir())
    assert {"index.html", "app.js", "app.css"} <= {file.name for file in files}
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not re.findall(r"https?://", text), file.name
        if file.name.endswith(".html"):
            assert not re.findall(r"<script>|\son[a-z]+=", text), file.name
