"""Checks that the names in the documents exist, and that they use the words of docs/glossary.md.

Paths of the repository and links between documents lead somewhere, tests that are named exist, types
in the glossary are types of the code, and words that the project does not use do not occur.
"""
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATES = ("backing", "codec", "fs", "index", "layout", "mount-tool", "store")
GLOSSARY = "docs/glossary.md"
DOCUMENTS = ("README.md", "CHANGELOG.md", "bench/README.md", "tests/README.md", "packaging/*", "docs/*.md", "docs/notes/*.md")
#: Documents whose claims have tests.
WITH_TESTS = ("docs/reliability.md", "docs/security.md", "docs/store-format.md")
#: Paths from the root of the repository. `index/` alone is a directory of a store.
PATH = re.compile(
    r"(?<![\w/.-])((?:(?:" + "|".join(CRATES) + r")/(?:src|tests|fuzz|examples)|(?:bench|docs|packaging|systemd|tests)/)[\w/.@-]*\w)"
)
LINK = re.compile(r"\]\(([^)#:]*)(#[^)]*)?\)")
BANNED = re.compile(r"\b(somebody|whoever|nobody|anew|catalogues?|so many)\b", re.IGNORECASE)
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def lines(text):
    return enumerate(text.splitlines(), 1)


def anchors(text):
    """Headings as links spell them."""
    headings = (line.lstrip("#").strip().lower() for line in text.splitlines() if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def paths(name, text):
    for number, line in lines(text):
        for path in PATH.findall(line):
            if "*" in path or (ROOT / path).exists():
                continue
            yield f"{name}:{number}: there is no {path}"


def links(name, text):
    if not name.endswith(".md"):
        return
    here = (ROOT / name).parent
    for number, line in lines(text):
        for address, anchor in LINK.findall(line):
            target = (here / address) if address else (ROOT / name)
            if not target.exists():
                yield f"{name}:{number}: the link leads to {address}, which does not exist"
            elif anchor and anchor[1:] not in anchors(target.read_text()):
                yield f"{name}:{number}: {address} has no heading {anchor}"


def words(name, text):
    if name == GLOSSARY:
        # Its last column has the words not to use.
        text = "\n".join(line.rpartition("|")[0].rpartition("|")[0] if line.startswith("|") else line for line in text.splitlines())
    blank = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code.group()), text)
    for number, line in lines(blank):
        for word in BANNED.findall(line):
            yield f"{name}:{number}: '{word}'"


def sources(*places):
    return [path.read_text() for place in places for path in (ROOT / place).rglob("*.rs") if "target" not in path.parts]


@functools.cache
def test_names():
    found = re.findall(r"\bfn (\w+)\(|\"(\w+)\"", "\n".join(sources(*CRATES, "tests")))
    return {function or text for function, text in found}


def tests(name, text):
    """Tests that a document names: sentences made into a name."""
    if name not in WITH_TESTS:
        return
    for number, line in lines(text):
        for word in re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){3,})`", line):
            if word not in test_names():
                yield f"{name}:{number}: there is no test {word}"


def types():
    """Names in the third column of the glossary that the code does not have."""
    defined = set()
    for source in sources(*(f"{crate}/src" for crate in CRATES)):
        defined.update(re.findall(r"\b(?:struct|enum|trait|type|fn|mod)\s+(\w+)", source))
    for number, line in lines((ROOT / GLOSSARY).read_text()):
        cells = line.split("|")
        if not line.startswith("|") or len(cells) != 6:
            continue
        column = re.sub(r"key `\w`", "", cells[3])
        for name in re.findall(r"`(\w+)`", column):
            if name not in defined:
                yield f"{GLOSSARY}:{number}: the code has no {name}"


def main():
    wrong = []
    names = [path.relative_to(ROOT).as_posix() for pattern in DOCUMENTS for path in sorted(ROOT.glob(pattern)) if path.is_file()]
    for name in names:
        text = (ROOT / name).read_text()
        for check in (paths, links, words, tests):
            wrong += check(name, text)
    wrong += types()
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(names)} documents name nothing that does not exist")


main()
