"""The parts of the documents about the last full run: python -m bench.documents [--check]

README.md and docs/performance.md have a generated part each, bench/results/latest.md is generated
as a whole. `--check` fails where one of them differs from bench/results/latest.json.
"""
import json
import os
import sys

from bench import readme, render

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results")
LATEST = os.path.join(RESULTS, "latest.json")
README = os.path.join(ROOT, "README.md")
PERFORMANCE = os.path.join(ROOT, "docs", "performance.md")


def read(path):
    with open(path) as file:
        return file.read()


def pictures(run, stem):
    """Title and file name of every plot of a run."""
    return [(title, f"{stem}-{name}.svg") for name, title, _, _ in render.plots(run)]


def report(run, stem):
    """All results of a run as a separate page."""
    return "# Results\n\n" + render.markdown(run, pictures(run, stem))


def table(run):
    """README.md as the run makes it."""
    return {README: render.replace(read(README), readme.section(run))}


def figures(run):
    """The other documents as the run makes them. Workloads describe themselves, and need numpy."""
    below = os.path.relpath(RESULTS, os.path.dirname(PERFORMANCE))
    section = render.markdown(run, [(title, f"{below}/{picture}") for title, picture in pictures(run, "latest")])
    return {
        PERFORMANCE: render.replace(read(PERFORMANCE), section),
        os.path.join(RESULTS, "latest.md"): report(run, "latest"),
    }


def refresh(run):
    for path, text in {**table(run), **figures(run)}.items():
        with open(path, "w") as file:
            file.write(text)


def outdated(documents):
    """Documents that differ from the results."""
    return [os.path.relpath(path, ROOT) for path, text in documents.items() if read(path) != text]


def check(run):
    wrong = outdated(table(run))
    try:
        wrong += outdated(figures(run))
    except ModuleNotFoundError as error:
        print(f"docs/performance.md is not compared: {error}")
    if wrong:
        sys.exit(f"{', '.join(wrong)}: not what bench/results/latest.json says; 'make bench-docs' writes it")


def main():
    run = json.loads(read(LATEST))
    if sys.argv[1:] == ["--check"]:
        check(run)
    elif len(sys.argv) == 1:
        refresh(run)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
