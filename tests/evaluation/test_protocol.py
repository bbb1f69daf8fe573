import pytest

from di2pose.errors import InputError
from di2pose.evaluation.protocol import PROTOCOLS, parse_protocols, select_records
from di2pose.pose.skeleton import H36M_17


def ids(dataset, name, **changes):
    (protocol,) = parse_protocols(name, **changes)
    return [dataset[int(row)].id for row in select_records(protocol, dataset)]


def test_protocols_state_what_their_numbers_depend_on():
    for name, protocol in PROTOCOLS.items():
        statement = protocol.statement()
        assert statement["id"] == name
        assert {"joints", "root", "sampling", "average", "occlusion"} <= statement.keys()
    assert PROTOCOLS["3dpw-14"].statement()["joint_count"] == 14
    assert PROTOCOLS["limb-12"].root == ("left_hip", "right_hip")
    assert PROTOCOLS["h36m-p1"].joints == H36M_17.joints
    assert len(PROTOCOLS["3dpw-14-smpl14"].joints) == 14
    assert "head_top" not in PROTOCOLS["3dpw-14-smpl14"].joints
    assert PROTOCOLS["advocc-80-limb12"].occlusion == PROTOCOLS["advocc-80"].occlusion


@pytest.mark.parametrize(
    ("text", "every", "message"),
    [
        ("h36m-p3", None, "no protocol is called h36m-p3; choose from h36m-p1"),
        (" ,", None, "called nothing"),
        ("limb-12", 0, "--every must be 1 or more"),
    ],
)
def test_unknown_names_and_settings_are_refused(text, every, message):
    with pytest.raises(InputError, match=message):
        parse_protocols(text, every)


def test_records_are_chosen_by_subject_split_and_sequence(make_samples, write_dataset):
    subjects, splits = ["S1", "S9", "S11", "S5"], ["train", "test", "validation", "test"]
    names = ["flat_guitar_01", "downtown_walking_00", "courtyard_box_00", "downtown_walking_01"]
    fields = {"subject": lambda i: subjects[i], "sequence": lambda i: names[i], "split": lambda i: splits[i]}
    dataset = write_dataset(make_samples(4, **fields))
    assert ids(dataset, "h36m-p1", every=1) == ["r1", "r2"]
    assert ids(dataset, "3dpw-occ") == ["r0", "r2"]
    assert ids(dataset, "3dpw-14") == ["r1", "r3"]
    assert ids(dataset, "3dpw-14", split="train") == ["r0"]


def test_frames_are_thinned_per_view_by_frame_number_and_not_by_position(make_samples, write_dataset, tmp_path):
    frames = [1, 3, 6, 11, 12, 1, 4, 6]
    folders = ["a"] * 5 + ["b"] * 3
    samples = make_samples(8, sequence="take", frame=lambda i: frames[i], image=lambda i: f"{folders[i]}/{i}.png")
    assert ids(write_dataset(samples), "h36m-p1") == ["r0", "r2", "r3", "r5", "r7"]
    thinned = make_samples(6, sequence="take", frame=lambda i: 1 + 5 * i, image=None)
    assert len(ids(write_dataset(thinned, folder=tmp_path / "thinned"), "h36m-p1")) == 6


def test_a_dataset_without_a_fitting_record_says_what_it_holds(make_samples, write_dataset):
    dataset = write_dataset(make_samples(2, split="train", subject="S1"))
    for name, message in (
        ("limb-12", r"'split': \('test',\).*splits train; another split is chosen by --split"),
        ("h36m-p1", r"S9.*subjects S1"),
        ("3dpw-occ", r"17 sequences of 3DPW-Occ.*sequences take0"),
    ):
        with pytest.raises(InputError, match=message):
            ids(dataset, name)
