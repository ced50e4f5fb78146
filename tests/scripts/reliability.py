"""Writes the table of a torture run into a document, between two markers."""
import datetime
import pathlib
import subprocess
import sys

BEGIN, END = "<!-- torture:begin -->", "<!-- torture:end -->"


def rows(directory):
    """Suite, kind of run, how often it ran, how often it passed."""
    for path in sorted(pathlib.Path(directory).glob("*.tsv")):
        for line in path.read_text().splitlines():
            kind, *fields = line.split("\t")
            if kind == "suite":
                name, executed, passed, _ = fields
                yield name, "tests", executed, passed
            elif kind == "tally":
                what, executed, passed, _ = fields
                yield path.stem, what, executed, passed
            elif kind == "failed":
                yield path.stem, f"FAILED: {fields[0]}", "1", "0"


def table(directory, seconds):
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    day = datetime.date.today().isoformat()
    lines = [
        f"Of {day}, commit {commit or 'unknown'}, {int(seconds) / 3600:.1f} hours by `make torture`:",
        "",
        "| suite | what | times | passed |",
        "|---|---|---:|---:|",
    ]
    found = list(rows(directory))
    lines += [f"| {suite} | {what} | {int(times):,} | {int(passed):,} |" for suite, what, times, passed in found]
    if not found:
        raise SystemExit("no results: nothing was run")
    return "\n".join(lines)


def main():
    directory, seconds, document = sys.argv[1:]
    path = pathlib.Path(document)
    text = path.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n{table(directory, seconds)}\n{END}{after}")


main()
