#!/usr/bin/env python3
"""Merges measurements into a Markdown table and checks the figures asked for.

usage: table.py MEASURE.tsv PEERS.tsv > table.md

Speeds are also given as a share of memcpy of the same run. Losses are marked.
"""
import collections
import math
import sys

sets = collections.OrderedDict()
for path in sys.argv[1:]:
    for line in open(path):
        name, group, codec, ratio, encode, decode, memcpy, how = line.rstrip("\n").split("\t")
        sets.setdefault((name, group), {})[codec] = (float(ratio), float(encode), float(decode), float(memcpy), how)

columns = ["fast", "fast+shape", "balanced+shape", "dense+shape", "zstd-1/128K", "zstd-3/128K", "lz4/128K",
           "blosc2 shuffle+zstd1", "blosc2 bytedelta+zstd5", "bitshuffle+lz4", "pco-8", "fpzip"]
columns = [c for c in columns if any(c in row for row in sets.values())]


def mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


print("Ratio, encode / decode in MB/s.\n")
print("| set | " + " | ".join(columns) + " |")
print("|---" * (len(columns) + 1) + "|")
for (name, group), row in sets.items():
    cells = []
    for codec in columns:
        cells.append("%.2f, %.0f / %.0f" % row[codec][:3] if codec in row else "")
    print(f"| {name} | " + " | ".join(cells) + " |")
real = [row for (name, group), row in sets.items() if group == "real"]
print("| **geometric mean, real** | " + " | ".join(
    "%.3f" % mean(row[c][0] for row in real if c in row) for c in columns) + " |")

print("\n| figure | asked | reached | |\n|---|---|---|---|")


def figure(text, asked, reached):
    print(f"| {text} | {asked:.3g} | {reached:.3g} | {'yes' if reached >= asked else '**no**'} |")


def worst(text, asked, share):
    value, name = min((share(row), name) for (name, _), row in sets.items())
    figure(f"{text}, on the worst set ({name})", asked, value)


copies = sorted(cell[3] for row in sets.values() for cell in row.values() if cell[3])
turbulence = sets[("turbulence-f32", "made")]["fast"]
figure("fast, turbulence float32: ratio", 1.65, turbulence[0])
figure("fast, turbulence float32: encode / memcpy", 0.125, turbulence[1] / turbulence[3])
worst("fast: encode / encode of zstd-1/128K", 1.0, lambda r: r["fast"][1] / r["zstd-1/128K"][1])
figure("fast: decode / encode (geometric mean)", 2.0, mean(r["fast"][2] / r["fast"][1] for r in sets.values()))
worst("fast: decode / encode", 2.0, lambda r: r["fast"][2] / r["fast"][1])
figure("fast, real sets, shapes unknown: ratio to zstd-3/128K", 1.25,
       mean(row["fast"][0] / row["zstd-3/128K"][0] for row in real))
figure("dense, real sets, shapes known: ratio to zstd-3/128K", 1.5,
       mean(row["dense+shape"][0] / row["zstd-3/128K"][0] for row in real))
rivals = ["pco-8", "fpzip", "blosc2 bytedelta+zstd5"]


def rival(row):
    """The densest rival, if any gains more than the tenth of a percent that frames may add."""
    best = max((c for c in rivals if c in row), key=lambda c: row[c][0], default=None)
    return best if best and row[best][0] > 1.001 else None


if any(rival(row) for row in sets.values()):
    figure("dense: ratio to the best of pco-8, fpzip, bytedelta+zstd on each set (geometric mean)", 1.0,
           mean(row["dense+shape"][0] / row[rival(row)][0] for row in sets.values() if rival(row)))
    worst("dense: ratio to the best of pco-8, fpzip, bytedelta+zstd", 1.0,
          lambda r: r["dense+shape"][0] / r[rival(r)][0] if rival(r) else math.inf)
figure("dense: encode / memcpy (geometric mean)", 1 / 80, mean(r["dense+shape"][1] / r["dense+shape"][3] for r in sets.values()))
worst("dense: encode / memcpy", 1 / 80, lambda r: r["dense+shape"][1] / r["dense+shape"][3])
figure("dense: decode / memcpy (geometric mean)", 1 / 16, mean(r["dense+shape"][2] / r["dense+shape"][3] for r in sets.values()))
worst("dense: decode / memcpy", 1 / 16, lambda r: r["dense+shape"][2] / r["dense+shape"][3])
noise = sets[("random-100", "made")]["fast"]
figure("incompressible: encode / memcpy", 0.5, noise[1] / noise[3])
figure("incompressible: ratio", 0.999, noise[0])


def losses(text, lost):
    names = [lost(row, name) for (name, _), row in sets.items()]
    print(f"\n{text}:", ", ".join(name for name in names if name) or "none")


print("\nmemcpy: %.1f GB/s (median over the run)" % (copies[len(copies) // 2] / 1000))
losses("Sets on which `fast` encodes slower than zstd-1/128K",
       lambda r, name: r["fast"][1] < r["zstd-1/128K"][1] and
       "%s (%.0f %%)" % (name, 100 * r["fast"][1] / r["zstd-1/128K"][1]))
losses("Sets on which `fast` decodes less than twice as fast as it encodes",
       lambda r, name: r["fast"][2] < 2 * r["fast"][1] and "%s (%.2f)" % (name, r["fast"][2] / r["fast"][1]))
losses("Sets on which `dense` with shapes is less dense than a peer",
       lambda r, name: rival(r) and r[rival(r)][0] > r["dense+shape"][0] and
       "%s (%s %.3f > %.3f)" % (name, rival(r), r[rival(r)][0], r["dense+shape"][0]))
losses("Sets on which `dense` with shapes encodes below 1/80 of memcpy",
       lambda r, name: 80 * r["dense+shape"][1] < r["dense+shape"][3] and
       "%s (1/%.0f)" % (name, r["dense+shape"][3] / r["dense+shape"][1]))
losses("Sets on which `dense` with shapes decodes below 1/16 of memcpy",
       lambda r, name: 16 * r["dense+shape"][2] < r["dense+shape"][3] and
       "%s (1/%.1f)" % (name, r["dense+shape"][3] / r["dense+shape"][2]))
