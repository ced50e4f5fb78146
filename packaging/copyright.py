#!/usr/bin/env python3
"""Prints debian/copyright: our licences, and those of every crate that is linked in.

The arguments are those with which the command was built (`--features ...`).
"""
import json
import pathlib
import subprocess
import sys

COMMAND = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform"]


def linked(metadata):
    """Crates that are linked into the command: its dependencies without those of tests and tools."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [key for key, package in packages.items() if package["name"] == "shale"]
    found = set()
    while waiting:
        key = waiting.pop()
        if key in found:
            continue
        found.add(key)
        for dependency in nodes[key]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return sorted((packages[key] for key in found if packages[key]["source"]), key=lambda p: (p["name"], p["version"]))


def indented(text):
    """A text in the form of a field of the format."""
    return "\n".join(" " + (line.rstrip() or ".") for line in text.strip().splitlines())


def main():
    host = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = next(line.split()[1] for line in host.splitlines() if line.startswith("host:"))
    metadata = json.loads(subprocess.run(COMMAND + [host] + sys.argv[1:], check=True, capture_output=True, text=True).stdout)
    print("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/")
    print("Upstream-Name: ShaleFS\n")
    print("Files: *\nCopyright: the ShaleFS authors\nLicense: Expat or Apache-2.0\n")
    print("License: Expat\n" + indented(pathlib.Path("LICENSE-MIT").read_text()) + "\n")
    print("License: Apache-2.0\n On Debian systems the licence is in /usr/share/common-licenses/Apache-2.0.\n")
    for package in linked(metadata):
        directory = pathlib.Path(package["manifest_path"]).parent
        texts = [
            path.read_text(errors="replace")
            for path in sorted(directory.iterdir())
            if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"))
        ]
        licence = package["license"] or "see below"
        print(f"Comment: linked in: {package['name']} {package['version']}, {licence}")
        for text in texts:
            # That one is in common-licenses.
            if "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" not in text:
                print(indented(text))
        print()


if __name__ == "__main__":
    main()
