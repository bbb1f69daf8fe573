import pytest

from di2pose.errors import InputError
from di2pose.evaluation.protocol import PROTOCOLS, parse_protocols, select_records
from di2pose.pose.skeleton import H36M_17


def ids(dataset, name, **changes):
    (protocol,) = parse_protocols(name, **changes)
    return [dataset[int(row)].id for row in select_records(protocol, dataset)]


def test_protocols_state_what_their_numbers_depend_on():
    for name in ("h36m-p1", "h36m-p2", "3dpw-14", "3dpw-occ", "advocc-40", "advocc-80", "occ-40", "occ-80", "limb-12"):
        statement = PROTOCOLS[name].statement()
        assert statement["id"] == name
        assert {"joints", "root", "sampling", "average", "occlusion"} <= statement.keys()
    assert PROTOCOLS["3dpw-14"].statement()["joint_count"] == 14
    assert PROTOCOLS["limb-12"].root == ("left_hip", "right_hip")
    assert PROTOCOLS["h36m-p1"].joints == H36M_17.joints


def test_joint_sets_other_than_the_common_14_have_other_names():
    assert len(PROTOCOLS["3dpw-14-smpl14"].joints) == 14
    assert "head_top" not in PROTOCOLS["3dpw-14-smpl14"].joints
    assert PROTOCOLS["advocc-80-limb12"].occlusion == PROTOCOLS["advocc-80"].occlusion


@pytest.mark.parametrize(
    ("text", "message"), [("h36m-p3", "no protocol is called h36m-p3; choose from h36m-p1"), (" ,", "called nothing")]
)
def test_unknown_names_list_the_known_ones(text, message):
    with pytest.raises(InputError, match=message):
        parse_protocols(text)


def test_every_must_be_positive():
    with pytest.raises(InputError, match="--every must be 1 or more"):
        parse_protocols("limb-12", every=0)


def test_human36m_is_tested_on_its_two_subjects(make_samples, write_dataset):
    subjects = ["S1", "S9", "S11", "S5", "S9"]
    dataset = write_dataset(make_samples(5, subject=lambda i: subjects[i]))
    assert ids(dataset, "h36m-p1", every=1) == ["r1", "r2", "r4"]


def test_frames_are_thinned_per_view_by_frame_number_and_not_by_position(make_samples, write_dataset):
    frames = [1, 3, 6, 11, 12, 1, 4, 6]
    folders = ["a"] * 5 + ["b"] * 3
    samples = make_samples(8, sequence="take", frame=lambda i: frames[i], image=lambda i: f"{folders[i]}/{i}.png")
    dataset = write_dataset(samples)
    assert ids(dataset, "h36m-p1") == ["r0", "r2", "r3", "r5", "r7"]


def test_a_dataset_that_was_thinned_before_is_not_thinned_again(make_samples, write_dataset):
    dataset = write_dataset(make_samples(6, sequence="take", frame=lambda i: 1 + 5 * i, image=None))
    assert len(ids(dataset, "h36m-p1")) == 6


def test_3dpw_occ_is_taken_from_all_splits(make_samples, write_dataset):
    names = ["flat_guitar_01", "downtown_walking_00", "courtyard_box_00"]
    splits = ["train", "test", "validation"]
    dataset = write_dataset(make_samples(3, sequence=lambda i: names[i], split=lambda i: splits[i]))
    assert ids(dataset, "3dpw-occ") == ["r0", "r2"]
    assert ids(dataset, "3dpw-14") == ["r1"]
    assert ids(dataset, "3dpw-14", split="train") == ["r0"]


def test_a_dataset_without_a_fitting_record_says_what_it_holds(make_samples, write_dataset):
    dataset = write_dataset(make_samples(2, split="train", subject="S1"))
    with pytest.raises(InputError, match=r"'split': \('test',\).*splits train; another split is chosen by --split"):
        ids(dataset, "limb-12")
    with pytest.raises(InputError, match=r"S9.*subjects S1"):
        ids(dataset, "h36m-p1")
    with pytest.raises(InputError, match=r"17 sequences of 3DPW-Occ.*sequences take0"):
        ids(dataset, "3dpw-occ")
