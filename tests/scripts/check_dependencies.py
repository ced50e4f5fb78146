"""Every dependency comes from crates.io, has a licence that deny.toml allows, and has a row in
docs/design.md.

What `cargo deny check licenses sources` would say, without the minutes it takes
to build it. Advisories need a database that is not a package registry.
"""
import json
import re
import subprocess
import sys
import tomllib

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def allowed(expression, allow):
    """Evaluates an SPDX expression; the old `MIT/Apache-2.0` means OR."""
    words = re.findall(r"[()]|[^\s()/]+|/", expression)
    python = []
    previous = None
    for word in words:
        if word in "()":
            python.append(word)
        elif word in ("OR", "/"):
            python.append("or")
        elif word == "AND":
            python.append("and")
        elif word == "WITH":
            pass
        elif previous == "WITH":
            pass  # an exception only gives more rights
        else:
            python.append(str(word in allow))
        previous = word
    return eval(" ".join(python), {"__builtins__": {}})  # only True, False, and, or, brackets


def stale_exceptions(deny, packages):
    """Exceptions of deny.toml for crates that no build has, or without a reason."""
    present = {(package["name"], package["version"]) for package in packages}
    named = [(entry.get("reason", "").partition(":")[0], "") for entry in deny["advisories"]["ignore"]]
    named += [entry["crate"].split("@") for entry in deny["bans"]["skip"]]
    for name, version in named:
        if not any(name == other and (found + ".").startswith(version and version + ".") for other, found in present):
            yield f"deny.toml makes an exception for '{name} {version}', which no build has"
    for entry in deny["advisories"]["ignore"] + deny["bans"]["skip"]:
        if not entry.get("reason"):
            yield f"deny.toml gives no reason for {entry}"


def documented(design):
    """The crates in the dependency table of docs/design.md."""
    with open(design) as file:
        section = file.read().partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {name.strip() for row in rows[2:] for name in row.split(",")}


def undocumented(packages):
    """Direct dependencies of the product without a row, and rows without a dependency."""
    own = [package for package in packages if package["source"] is None]
    product = {package["name"] for package in own if not package["manifest_path"].count("/tests/")}
    direct, used = set(), set()
    for package in own:
        for dependency in package["dependencies"]:
            if dependency["source"] is None:
                continue
            used.add(dependency["name"])
            if package["name"] in product and dependency["kind"] is None:
                direct.add(dependency["name"])
    rows = documented("docs/design.md")
    for name in sorted(direct - rows):
        yield f"{name} has no row in the table of dependencies of docs/design.md"
    for name in sorted(rows - used):
        yield f"{name} has a row in docs/design.md, and is not used"


def main():
    with open("deny.toml", "rb") as file:
        deny = tomllib.load(file)
    allow = set(deny["licenses"]["allow"])
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    wrong = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if package["source"] not in (None, CRATES_IO):
            wrong.append(f"{name} comes from {package['source']}")
        licence = package["license"]
        if not licence or not allowed(licence, allow):
            wrong.append(f"{name} is under {licence or 'no licence'}")
    foreign = sum(package["source"] is not None for package in packages)
    if not foreign:
        wrong.append("no dependencies were found at all")
    wrong += stale_exceptions(deny, packages)
    wrong += undocumented(packages)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{foreign} dependencies, all from crates.io, all under allowed licences, the direct ones documented")


main()
