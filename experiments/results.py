"""Make the tables of results/small.md again: run its commands and put their reports behind them.

    python experiments/results.py --work DIR              # DIR holds prepared/ and features/
    python experiments/results.py --work DIR --only real  # only commands whose --out has this in its name

A command in a fenced block is followed by `<!-- report -->`, its report, and `<!-- end -->`. Commands go on where they
stopped, so a second run is quick. The sentences of the page are written by hand: read them again afterwards.
"""

import argparse
import os
import re
import shlex
import subprocess
from pathlib import Path

PAGE = Path(__file__).parent.parent / "experiments" / "results" / "small.md"
COMMAND = r"```\n(?P<command>di2pose evaluate [^\n]*--out (?P<out>\S+))\n```\n\n<!-- report -->\n"
BLOCK = re.compile(f"({COMMAND}).*?(<!-- end -->)", re.S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()

    def again(block: re.Match[str]) -> str:
        if options.only not in block["out"]:
            return block[0]
        print(f"$ {block['command']}", flush=True)
        subprocess.run(shlex.split(block["command"]), cwd=options.work, check=True, stdout=subprocess.DEVNULL)
        report = (options.work / block["out"] / "report.md").read_text(encoding="utf-8")
        stop = "## " if "steps" in block["out"] else "## What the numbers are"  # of many rows the first table is enough
        tables = report.removeprefix("# Evaluation").split(stop)[0].strip()
        return f"{block[1]}\n{re.sub(r'^## ', '### ', tables, flags=re.M)}\n\n{block[4]}"

    text = BLOCK.sub(again, PAGE.read_text(encoding="utf-8"))
    temporary = PAGE.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, PAGE)


if __name__ == "__main__":
    main()
