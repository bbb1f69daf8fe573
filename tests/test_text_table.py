from di2pose.text_table import aligned, latex, markdown

HEAD, ROWS = ["what", "who", "mm"], [["mean of 8", "small", "99.2 ± 0.1"], ["peer", "blazepose_heavy", "-"]]


def test_words_stand_to_the_left_numbers_to_the_right_and_nothing_is_lost():
    lines = markdown(HEAD, ROWS).splitlines()
    head, rule, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert (head, rows) == (HEAD, ROWS)
    assert [(cell[0], cell[-1]) for cell in rule] == [(":", "-"), (":", "-"), ("-", ":")]
    assert aligned(HEAD, ROWS).splitlines()[1].split("  ")[0] == "mean of 8"
    assert r"blazepose\_heavy" in latex(HEAD, ROWS)
    assert aligned(HEAD, []).split() == HEAD
