"""The table of README.md, of a made-up run and in the repository."""
import json
import unittest

from bench import documents, readme
from bench.tests import sample


def ferret(*rows):
    """Files as (raw, as written, settled, btrfs, nccopy)."""
    cells = [[f"f{number}", *(f"{size:,}" for size in row), "1"] for number, row in enumerate(rows)]
    return {"title": "Stored bytes of ferret-datasets", "rows": cells, "figures": {}}


class Readme(unittest.TestCase):
    def section(self, *tables):
        run = sample.run()
        run["benches"]["settle"]["tables"] += tables
        return readme.section(run)

    def test_only_what_was_measured_has_a_row(self):
        text = self.section()
        self.assertNotIn("8 KiB", text)
        self.assertNotIn("ferret", text)
        self.assertNotIn("slice", text)
        self.assertIn("on 2026-01-01: 2 cores", text)

    def test_sizes_are_added_up(self):
        text = self.section(ferret((5_000_000, 3_000_000, 2_000_000, 4_000_000, 3_000_000), (1_000_000, 9, 1_000_000, 2_000_000, 1_100_000)))
        self.assertIn("| 2 NetCDF files of climatologies (6 MB,", text)
        self.assertIn("| 3.0 MB, 2.0 times smaller | btrfs zstd:3 6.0 MB; `nccopy -d5 -s` 4.1 MB; no file is larger", text)

    def test_a_loss_is_said(self):
        text = self.section(ferret((5_000_000, 3_000_000, 2_000_000, 4_000_000, 1_900_000)))
        self.assertIn("1 of them larger than with one of these", text)

    def test_slices_are_those_that_were_read(self):
        rows = [["[t, z]", "1 %", "2.0 %", "0.5 %", "1"], ["[z, t]", "1 %", "31.1 %", "44.3 %", "1.4"]]
        table = {"title": "Slices of a settled file", "rows": rows, "figures": {"header_frames": 1}}
        text = self.section(table)
        self.assertIn("| reads 0.5 to 44.3 % of the stored bytes |", text)
        self.assertIn("| reads one frame |", text)

    def test_writes_have_the_medians_of_both(self):
        run = sample.run()
        run["benches"]["small"] = run["benches"]["stream"]
        run["benches"]["stream"]["devices"]["throttled"] = run["benches"]["stream"]["devices"]["free"]
        run["benches"]["files"]["devices"]["free"]["2000 files"]["ext4"] = sample.row("ext4", create=[21_900.4])
        text = readme.section(run)
        self.assertIn("| 800 / 500 MB/s | ext4 1,000 / 450 MB/s |", text)
        self.assertIn("| 500 MB/s | ext4 450, btrfs zstd:3 290 MB/s |", text)
        self.assertIn("| 6,000 per second | ext4 21,900 |", text)

    def test_the_repository_says_what_its_last_run_found(self):
        run = json.loads(documents.read(documents.LATEST))
        self.assertEqual(documents.read(documents.README), documents.table(run)[documents.README])
        self.assertEqual(documents.outdated(documents.figures(run)), [], "make bench-docs writes them")
