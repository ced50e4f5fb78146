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


turbulence = sets[("turbulence-f32", "made")]["fast"]
figure("fast, turbulence float32: ratio", 1.65, turbulence[0])
figure("fast, turbulence float32: encode / memcpy", 0.125, turbulence[1] / turbulence[3])
figure("fast, real sets, shapes unknown: ratio to zstd-3/128K", 1.25,
       mean(row["fast"][0] / row["zstd-3/128K"][0] for row in real))
figure("dense, real sets, shapes known: ratio to zstd-3/128K", 1.5,
       mean(row["dense+shape"][0] / row["zstd-3/128K"][0] for row in real))
rivals = ["pco-8", "fpzip", "blosc2 bytedelta+zstd5"]
if any(c in row for row in real for c in rivals):
    figure("dense, all sets: ratio to the best of pco-8, fpzip, bytedelta+zstd on each set", 1.0,
           mean(row["dense+shape"][0] / max(row[c][0] for c in rivals if c in row)
                for row in sets.values() if any(c in row for c in rivals)))
figure("dense, real sets: encode / memcpy (geometric mean)", 0.0125, mean(r["dense+shape"][1] / r["dense+shape"][3] for r in real))
figure("dense, real sets: decode / memcpy (geometric mean)", 0.0625, mean(r["dense+shape"][2] / r["dense+shape"][3] for r in real))
noise = sets[("random-100", "made")]["fast"]
figure("incompressible: encode / memcpy", 0.5, noise[1] / noise[3])
figure("fast: decode / encode (geometric mean)", 2.0, mean(r["fast"][2] / r["fast"][1] for r in sets.values()))

print("\nSets on which `fast` encodes slower than zstd-1/128K:",
      ", ".join("%s (%.0f%%)" % (name, 100 * r["fast"][1] / r["zstd-1/128K"][1])
                for (name, _), r in sets.items() if r["fast"][1] < r["zstd-1/128K"][1]) or "none")
print("\nSets on which `dense` with shapes is less dense than a peer:",
      ", ".join(f"{name} ({best} {r[best][0]:.3f} > {r['dense+shape'][0]:.3f})"
                for (name, _), r in sets.items()
                for best in [max((c for c in rivals if c in r), key=lambda c: r[c][0], default="dense+shape")]
                if r[best][0] > r["dense+shape"][0]) or "none")
