"""`di2pose ablate`, with real processes at tiny size."""

import json

from PIL import Image

from di2pose.cli import main


def test_two_cells_with_two_seeds_end_in_a_table(two_cells, words, tmp_path, capsys):
    assert main(words) == 0
    text = capsys.readouterr().out
    print(text)
    print((tmp_path/"out"/"batch.json").read_text())
    assert 0
