"""Tables: words to the left, numbers to the right, nothing lost."""

from di2pose.text_table import aligned, latex, markdown

HEAD, ROWS = ["what", "who", "mm"], [["mean of 8", "small", "99.2 ± 0.1"], ["peer", "blazepose_heavy", "-"]]


def test_words_stand_to_the_left_and_numbers_to_the_right():
    head, rule, *rows = markdown(HEAD, ROWS).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")] == HEAD
    sides = [(cell.strip()[0], cell.strip()[-1]) for cell in rule.strip("|").split("|")]
    assert sides == [(":", "-"), (":", "-"), ("-", ":")]
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in rows] == ROWS


def test_a_terminal_and_a_paper_get_the_same_cells():
    assert aligned(HEAD, ROWS).splitlines()[1].split("  ")[0] == "mean of 8"
    assert r"blazepose\_heavy" in latex(HEAD, ROWS)
    assert aligned(HEAD, []).split() == HEAD
