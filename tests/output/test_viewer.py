"""The page in a real headless Chromium."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from output.people import H36M_19, SIZE, person, result, video
from PIL import Image

from di2pose.output.overlay import UNSURE_MM
from di2pose.output.viewer import MOST_FRAMES, page_data
from di2pose.pose.skeleton import H36M_17
from di2pose.result import KNOWN

FRAMES = 12
WORDS = {"visible": "visible", "occluded": "occluded", "out_of_frame": "out of frame"}
TABLE = "return [...document.querySelectorAll('#rows tr')].map(r => [...r.cells].map(c => c.textContent))"
PLACES = "return document.getElementById('view').places"
INK = """const view = document.getElementById('view'), copy = new OffscreenCanvas(view.width, view.height);
const pen = copy.getContext('2d', { willReadFrequently: true });
pen.drawImage(view, 0, 0);
return pen.getImageData(0, 0, view.width, view.height).data.filter((v, k) => k % 4 === 3 && v > 0).length"""
BOX = "const b = document.getElementById(arguments[0]).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
VIEW = "return {...document.getElementById('view').dataset}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    photo = Image.linear_gradient("L").resize(SIZE).convert("RGB")
    still = result([person(1, root_mm=(-500.0, 0.0, 3500.0)), person(2, root_mm=(600.0, 0.0, 4000.0))], picture=photo)
    still.save(folder / "still.html")
    walk = video([person(k, track=0) if k != 3 else None for k in range(FRAMES)], picture=photo)
    walk.save(folder / "video.html")
    far = person(2, root_mm=(1500.0, -200.0, 14000.0))
    result([far, person(1, root_mm=(0.0, 0.0, 2500.0))], picture=photo).save(folder / "far.html")
    result([]).save(folder / "nobody.html")
    result([person(1).convert("coco17")]).save(folder / "coco.html")
    return folder, still, walk


@pytest.fixture
def still(browser, pages):
    browser.open(pages[0] / "still.html")
    yield pages[1]
    assert browser.messages() == []


@pytest.fixture
def walk(browser, pages):
    browser.open(pages[0] / "video.html")
    yield pages[2]
    assert browser.messages() == []


def middle(browser):
    box = browser.run(BOX, "view")
    return box[0] + box[2] / 2, box[1] + box[3] / 2


def check_table(rows, someone):
    for j, (row, name) in enumerate(zip(rows, H36M_17.joints, strict=True)):
        assert row[0] == name.replace("_", " ")
        numbers = [float(text.replace("\u2212", "-")) for text in row[1:5]]
        np.testing.assert_allclose(numbers, [*someone.joints_mm[j], someone.r90_mm[j]], atol=0.56)
        assert row[5] == WORDS[someone.state[j]]


def test_the_table_says_what_the_data_says_of_the_person_who_is_chosen(browser, still):
    check_table(browser.run(TABLE), still.people[0])
    options = "return [...document.getElementById('person').options].map(o => o.text)"
    assert browser.run(options) == ["Person 0", "Person 1"]
    browser.run("const s = document.getElementById('person'); s.value = 1; s.dispatchEvent(new Event('change'))")
    check_table(browser.run(TABLE), still.people[1])
    x, y = still.people[0].joints_2d[0]
    box = browser.run(BOX, "photo")
    scale = box[2] / SIZE[0]
    browser.drag((box[0] + x * scale, box[1] + y * scale), (box[0] + x * scale, box[1] + y * scale))  # a click
    check_table(browser.run(TABLE), still.people[0])


def test_dragging_and_arrow_keys_turn_the_pose(browser, still):
    before, view, at = browser.run(PLACES), browser.run(VIEW), middle(browser)
    assert view["shown"] == "2"  # people side by side are all in the view
    browser.drag(at, (at[0] + 120, at[1]))
    after = browser.run(PLACES)
    assert len(after) == 17
    assert np.linalg.norm(np.array(before) - np.array(after), axis=1).max() > 30
    assert float(browser.run(VIEW)["yaw"]) > float(view["yaw"]) + 0.5
    browser.drag(at, (at[0], at[1] + 60), kind="touch")
    start = browser.run(VIEW)
    assert float(start["pitch"]) > float(view["pitch"]) + 0.2
    browser.run("document.getElementById('view').focus()")
    browser.press("right", "right", "up", "left")
    now = browser.run(VIEW)
    assert float(now["yaw"]) == pytest.approx(float(start["yaw"]) + 0.12, abs=0.01)
    assert float(now["pitch"]) == pytest.approx(float(start["pitch"]) - 0.12, abs=0.01)


def test_the_front_view_is_the_cameras(browser, still):
    browser.click("[data-yaw='0'][data-pitch='0']")
    places, truth = np.array(browser.run(PLACES)), still.people[0].joints_mm[:, :2]
    # Up to scale and the little perspective: the screen's x and y grow as the camera's do.
    for axis in (0, 1):
        assert np.corrcoef(places[:, axis], truth[:, axis])[0, 1] > 0.97
        assert np.polyfit(truth[:, axis], places[:, axis], 1)[0] > 0


def test_wheel_pinch_and_keys_zoom(browser, still):
    at = middle(browser)
    spread = [np.ptp(np.array(browser.run(PLACES)), axis=0).max()]
    for act in (lambda: browser.scroll(at, -200), lambda: browser.pinch(at, 40, 90), lambda: browser.press("+")):
        act()
        spread.append(np.ptp(np.array(browser.run(PLACES)), axis=0).max())
    assert np.all(np.diff(spread) > 3), spread
    browser.press("-", "-")
    assert np.ptp(np.array(browser.run(PLACES)), axis=0).max() < spread[-1]
    browser.press("0")
    assert browser.run(VIEW)["zoom"] == "1"


def test_bones_are_dashed_by_their_radius_and_not_by_the_state(browser, tmp_path):
    opaque = INK.partition("return")[0] + "return arguments[0].map(([x, y]) => pen.getImageData(x, y, 1, 1).data[3])"
    for radius, state, dashed in ((UNSURE_MM, "occluded", False), (UNSURE_MM + 1, KNOWN[-1], True)):
        someone = replace(person(1, state=np.array([state] * 17)), r90_mm=np.full(17, radius))
        result([someone]).save(tmp_path / "d.html")
        browser.open(tmp_path / "d.html")
        browser.press("g", "b")
        ends = np.array(browser.run(PLACES))[np.array(H36M_17.bones)]  # bones 2 2
        along = ends[:, :1] + np.linspace(0, 1, 40)[:, None] * (ends[:, 1:] - ends[:, :1])
        alpha = np.array(browser.run(opaque, np.rint(along.reshape(-1, 2)).tolist()))
        assert bool((alpha < 250).mean() > 0.1) is dashed
    assert browser.run("return Di2PoseDraw.UNSURE") == UNSURE_MM
    assert browser.messages() == []


def test_hypotheses_and_balls_come_and_go(browser, still):
    full = browser.run(INK)
    browser.press("g")
    without = browser.run(INK)
    assert without < full
    assert browser.run("return document.getElementById('ghosts').getAttribute('aria-pressed')") == "false"
    browser.click("#ghosts")
    assert browser.run(INK) == full
    browser.press("b")
    assert browser.run(INK) < full


def test_the_view_is_framed_round_the_main_people_and_everybody_is_a_choice(browser, pages):
    browser.open(pages[0] / "far.html")
    _, _, width, height = browser.run(BOX, "view")
    pressed = "return document.getElementById('everybody').getAttribute('aria-pressed')"

    def reach(number):
        """How high and wide the person is in the view, over its sides, and whether all of them is in it."""
        browser.run(
            "const s = document.getElementById('person'); s.value = arguments[0]; s.onchange({target: s})", number
        )
        places = np.array(browser.run(PLACES)) / (width, height)
        return np.ptp(places, axis=0).max(), (np.abs(places - 0.5) < 0.5).all()

    assert browser.run("return document.getElementById('person').value") == "1"  # the near one, who is second
    assert (browser.run(VIEW)["shown"], browser.run(pressed)) == ("1", "false")
    near, _ = reach(1)
    assert near > 0.4
    browser.press("e")
    assert (browser.run(VIEW)["shown"], browser.run(pressed)) == ("2", "true")
    for yaw in ("0", "1.5708"):
        browser.click(f"[data-yaw='{yaw}'][data-pitch='0']")
        sizes, inside = zip(*(reach(number) for number in (0, 1)), strict=True)
        assert all(inside)
        assert min(sizes) > 0.02
        assert max(sizes) < 0.5 * near
    browser.click("#everybody")
    assert (browser.run(VIEW)["shown"], browser.run(pressed)) == ("1", "false")
    reach(0)
    assert browser.run(VIEW)["shown"] == "2"  # who is chosen is shown
    assert browser.messages() == []


def test_the_pointer_over_a_joint_names_it_and_its_row_marks_it(browser, still):
    before = browser.run("return document.getElementById('view').toDataURL()")
    browser.click("#rows tr:nth-child(6) button")
    assert browser.run("return document.querySelector('#rows tr.chosen th').textContent") == "left knee"
    assert browser.run("return document.getElementById('view').toDataURL()") != before
    left, top, _, _ = browser.run(BOX, "view")
    x, y = browser.run(PLACES)[H36M_17.index("right_wrist")]
    browser.hover((left + x, top + y))
    text = browser.run("const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent")
    told = re.fullmatch(r"right wrist ± (\d+) mm, visible", text)
    assert int(told[1]) == pytest.approx(still.people[0]["right_wrist"].r90_mm, abs=0.56)


def test_the_slider_changes_the_frame_and_a_frame_without_the_person_is_empty(browser, walk):
    check_table(browser.run(TABLE), walk[0].people[0])
    browser.run("document.getElementById('slider').focus()")
    browser.press(*["right"] * 7)
    assert browser.run(VIEW)["frame"] == "7"
    check_table(browser.run(TABLE), walk[7].people[0])
    assert browser.run("return document.getElementById('time').textContent") == "0.23 s · frame 7"

    browser.run("const s = document.getElementById('slider'); s.value = 3; s.dispatchEvent(new Event('input'))")
    assert {text for row in browser.run(TABLE) for text in row[1:]} == {""}
    assert browser.run(PLACES) == []


def test_space_plays_and_stops_and_one_person_needs_no_choice_of_everybody(browser, walk):
    assert browser.run("return document.getElementById('everybody').hidden")
    browser.press("e")
    assert browser.run(VIEW)["everybody"] == "false"
    browser.press(" ")
    assert browser.run("return document.getElementById('play').textContent") == "Pause"
    browser.wait("""const done = arguments[0], view = document.getElementById('view');
        const look = () => Number(view.dataset.frame) >= 5 ? done() : requestAnimationFrame(look); look()""")
    browser.press(" ")
    assert browser.run("return document.getElementById('play').textContent") == "Play"
    check_table(browser.run(TABLE), walk[int(browser.run(VIEW)["frame"])].people[0])


@pytest.mark.parametrize("page", ["still", "video", "coco"])
def test_a_phone_needs_no_sideways_scrolling(browser, pages, page):
    browser.open(pages[0] / f"{page}.html", width=390, height=844, phone=True)
    wide = """const parts = [...document.querySelectorAll('section, table, header, canvas')];
        return [document.documentElement.scrollWidth, ...parts.map(e => e.getBoundingClientRect().right)]"""
    assert max(browser.run(wide)) <= 390
    assert browser.run(
        "return document.querySelector('.table').scrollWidth <= document.querySelector('.table').clientWidth"
    )
    assert browser.messages() == []


def test_light_and_dark_follow_the_system_and_every_control_has_a_name(browser, pages):
    seen = []
    nameless = """return [...document.querySelectorAll('button, select, input, canvas, section')]
        .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim())).map(e => e.outerHTML)"""
    for dark in (False, True):
        browser.open(pages[0] / "video.html", dark=dark)
        assert browser.run(nameless) == []
        colour = browser.run("return getComputedStyle(document.body).backgroundColor")
        seen.append(sum(map(int, re.findall(r"\d+", colour))))
    assert seen[0] > 600
    assert seen[1] < 150
    assert browser.messages() == []


def test_nobody_and_unknown_joints_are_told(browser, pages):
    browser.open(pages[0] / "nobody.html")
    assert browser.run(PLACES) == []
    browser.open(pages[0] / "coco.html")
    assert browser.run(TABLE)[1] == ["left eye", "", "", "", "", ""]
    assert browser.run("return document.getElementById('view').places[1]") is None
    assert browser.messages() == []


def test_the_page_is_one_file_that_loads_nothing_and_names_cannot_break_out(pages, tmp_path):
    text = (pages[0] / "video.html").read_text(encoding="utf-8")
    assert not re.findall(r"https?://", text)
    assert "default-src 'none'" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert all(frame["photo"].startswith("data:image/jpeg;base64,") for frame in data["frames"])
    data = page_data([result([person(skeleton=H36M_19)])], None)
    assert (data["joints"], data["parents"]) == (list(H36M_19.joints), list(H36M_19.parents))
    assert len(data["frames"][0]["people"][0]["joints"]) == 19
    nasty = result([person()], image="</script><b>.jpg", model="</script><i>", picture=Image.new("RGB", SIZE))
    nasty.save(tmp_path / "n.html")
    text = (tmp_path / "n.html").read_text()
    assert text.count("</script>") == 2
    assert "script&gt;&lt;b&gt;.jpg</h1>" in text


def test_long_videos_are_thinned_out():
    frames = [result([], frame_index=k, time_s=k / 30) for k in range(2 * MOST_FRAMES + 1)]
    data = page_data(frames, 30.0, every=3)
    assert [frame["index"] for frame in data["frames"][:3]] == [0, 3, 6]
    assert data["rate"] == 10.0
    assert "1 frame in 3 of 801" in data["about"]
