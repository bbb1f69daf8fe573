from di2pose.cli import COMMANDS, main


def test_usage_lists_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)


def test_unknown_command_names_itself(capsys):
    assert main(["nonsense"]) == 2
    assert "no command 'nonsense'" in capsys.readouterr().err
