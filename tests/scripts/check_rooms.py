"""Imports go one way: checks the rooms of each crate against the picture in docs/design.md.

The picture is the block tagged `rooms`: a crate, then its floors, the highest first. A room imports
from the floors below its own, never from its own floor or from above. A module that is missing
from the picture, or a room that no longer exists, is an error too. Unit tests and what only tests
use (`testing.rs` inside a room) may import anything.

In the crates of DOORS a room is entered through its mod.rs only: the files inside are private
modules, so the compiler refuses an import past the door.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DESIGN = ROOT / "docs" / "design.md"
DOORS = ("fs", "store")


def picture():
    """The floor of each room of each crate, counted from the bottom."""
    block = re.search(r"^```rooms\n(.*?)^```", DESIGN.read_text(), re.M | re.S)
    if not block:
        sys.exit(f"{DESIGN}: the block `rooms` is missing")
    floors = {}
    for line in block[1].splitlines():
        if line and not line.startswith(" "):
            crate, rooms = line.split(None, 1)
            floors[crate] = [rooms.split()]
        elif line.strip():
            floors[crate].append(line.split())
    return {
        crate: {room: height for height, rooms in enumerate(reversed(levels)) for room in rooms}
        for crate, levels in floors.items()
    }


def paths(tree, prefix=()):
    """The paths of a use declaration, its braces taken apart."""
    head, brace, rest = tree.strip().partition("{")
    prefix += tuple(part for part in re.split(r"::|\s+as\s+\w+", head.strip()) if part)
    if not brace:
        yield prefix
        return
    depth, start, inner = 0, 0, rest.rsplit("}", 1)[0] + ","
    for place, letter in enumerate(inner):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if inner[start:place].strip():
                yield from paths(inner[start:place], prefix)
            start = place + 1


def code(text):
    """Product code only: without comments, the insides of strings, and unit tests."""
    literal = r'\bb?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.|[^\'\\])\'|//[^\n]*|/\*.*?\*/'
    text = re.sub(literal, lambda match: " " if match[0].startswith("/") else '""', text, flags=re.S)
    tests = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{")
    while match := tests.search(text):
        text = text[: match.start()] + text[block_end(text, match.end()) :]
    return text


def block_end(text, place):
    """Where the block ends that was opened just before `place`."""
    depth = 1
    while depth and place < len(text):
        depth += (text[place] == "{") - (text[place] == "}")
        place += 1
    return place


def imports(text, module=()):
    """Every path below `crate::`, `self::` or `super::` in product code, and the module it is in."""
    text = code(text)
    inner = re.compile(r"\bmod\s+(\$?\w+)\s*\{")
    while match := inner.search(text):
        end = block_end(text, match.end())
        yield from imports(text[match.end() : end - 1], (*module, match[1]))
        text = text[: match.start()] + text[end:]
    for tree in re.findall(r"\buse\s+([^;]+);", text):
        for path in paths(tree):
            yield path, module
    for path in re.findall(r"\b(?:crate|self|super)(?:\s*::\s*\w+)+", text):
        yield tuple(re.split(r"\s*::\s*", path)), module


def roots(source):
    """The re-exports of a crate's root, and the room each is from."""
    names = {}
    for name in ("lib.rs", "main.rs"):
        if (source / name).exists():
            for path, _ in imports((source / name).read_text()):
                path = path[1:] if path[0] in ("crate", "self") else path
                if len(path) > 1:
                    names.setdefault(path[-1], path[0])
    return names


def upward(text, module, heights, handed_on):
    """The imports of a file that do not go down, and what each is from."""
    room = module[0]
    for path, inner in imports(text):
        base = [*module, *inner]
        while path and path[0] in ("self", "super"):
            base = base[:-1] if path[0] == "super" else base
            path = path[1:]
            if not base:
                path = ("crate", *path)
        if path in (("crate",), ("crate", "*")):
            yield path, "every room"
        if len(path) < 2 or path[0] != "crate":
            continue
        target = path[1] if path[1] in heights else handed_on.get(path[1])
        if target in heights and target != room and heights[target] >= heights[room]:
            yield path, f"`{target}`"


def faults(crate, heights):
    source = ROOT / crate / "src"
    handed_on = roots(source)
    seen = set()
    for file in sorted(source.rglob("*.rs")):
        module = list(file.relative_to(source).with_suffix("").parts)
        if module[-1] == "mod":
            module.pop()
        if module in (["lib"], ["main"]) or "tests" in module or "testing" in module[1:]:
            continue
        room = module[0]
        seen.add(room)
        if room not in heights:
            yield f"{file.relative_to(ROOT)}: the room `{room}` is not in the picture"
            continue
        text = file.read_text()
        for opened in re.findall(r"^\s*pub(?:\(.+?\))? mod (\w+);", text, re.M) if crate in DOORS else ():
            yield f"{file.relative_to(ROOT)}: `mod {opened}` is not private, which opens a second door"
        for path, target in upward(text, module, heights, handed_on):
            yield f"{file.relative_to(ROOT)}: `{room}` imports {'::'.join(path)} from {target}"
    for room in heights.keys() - seen:
        yield f"{crate}/src: the picture has a room `{room}` that does not exist"


# Ways to import from the room `above`, as the file `below/file.rs` could.
UPWARD = (
    "use crate::above::Thing;",
    "use crate::{below::{One, Two}, above::{Three, Four}};",
    "pub(crate) use {std::io, crate::above::*};",
    "use super::super::above::Thing as Other;",
    "use super::{super::above::Thing};",
    "use self::super::super::above;",
    "use crate::HandedOn;",
    "use crate::*;",
    "use crate as house;",
    "fn f() { crate::above::thing(); }",
    "fn f() { super::super::above::thing(); }",
    "fn f() {\n    crate::\n        above::thing();\n}",
    'fn f() { let url = "http://"; crate::above::thing(); }',
    "mod inner { use super::super::super::above::Thing; }",
    "#[cfg(test)]\nmod tests { fn f() {} }\nuse crate::above::Thing;",
)
DOWNWARD = (
    "use crate::lowest::Thing;",
    "use super::sibling::Thing;",
    "// use crate::above::Thing;",
    "/* crate::above */",
    'const TEXT: &str = "crate::above::Thing";',
    "#[cfg(test)]\nmod tests {\n    use crate::above::Thing;\n    mod more {}\n}",
    "mod inner { use super::*; use super::super::Thing; }",
)


def check_itself():
    heights = {"above": 2, "below": 1, "lowest": 0}
    for expected, samples in ((True, UPWARD), (False, DOWNWARD)):
        for text in samples:
            found = any(upward(text, ["below", "file"], heights, {"HandedOn": "above"}))
            if found != expected:
                sys.exit(f"{sys.argv[0]}: misreads {text!r}")


def main():
    check_itself()
    crates = picture()
    found = sorted({fault for crate, heights in crates.items() for fault in faults(crate, heights)})
    for fault in found:
        print(fault)
    print(f"{len(found)} imports or rooms against the picture in {len(crates)} crates")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
