"""Verdicts on a made-up run."""
import unittest

from bench.targets import judge
from bench.tests import sample


class Targets(unittest.TestCase):
    def setUp(self):
        self.verdicts = {verdict["text"]: verdict for verdict in judge(sample.run())}

    def check(self, text, value, reached):
        verdict = self.verdicts[text]
        self.assertAlmostEqual(verdict["value"], value)
        self.assertIs(verdict["reached"], reached)

    def test_at_least(self):
        self.check("1 MiB writes, close, unthrottled: by ext4", 0.8, True)
        self.check("1 MiB writes, durable, unthrottled: by ext4", 500 / 450, True)

    def test_the_fastest_of_several_peers_counts(self):
        self.check("1 MiB writes, close, unthrottled: by the fastest btrfs", 800 / 1250, False)

    def test_at_most(self):
        self.check("CPU for writing: by btrfs compress-force=zstd:3", 2.5 / 4, True)
        self.check("index, % of stored bytes", 0.3, False)
        self.check("ferret-datasets: files not smaller than nccopy -d5 -s", 0, True)

    def test_what_was_not_measured_is_no_success(self):
        verdict = self.verdicts["1 MiB writes, durable, 200 MB/s: by ext4"]
        self.assertIsNone(verdict["value"])
        self.assertIsNone(verdict["reached"])

    def test_variants_named_by_their_size_are_found(self):
        self.check("creating small files: by bindfs", 1.2, True)
        self.check("deleting small files: by bindfs", 0.5, False)

    def test_every_application_must_be_beaten(self):
        self.check("HDF5 durable, 200 MB/s: by the fastest application that compresses", 2.0, True)
        self.check("HDF5 raw / stored: by the densest application that compresses", 1.7 / 1.8, False)

    def test_memory_is_the_worst_of_all(self):
        self.check("memory beyond the budget, MiB, worst of all workloads", 300 - 2048, True)
        run = sample.run()
        small = {"figures": {"peak": [200, 300, 210]}, "peer": "shale", "label": ""}
        run["benches"]["memory"] = {"devices": {"free": {"": {"shale": small}}}, "tables": [], "absent": {}}
        verdict = next(v for v in judge(run) if v["text"].startswith("memory"))
        self.assertEqual((verdict["value"], verdict["reached"]), (172, False))
