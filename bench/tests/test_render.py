"""Markdown and plots of a made-up run."""
import json
import unittest
import xml.etree.ElementTree as xml

from bench import plot, render, workloads
from bench.stats import Sample
from bench.tests import sample


class Render(unittest.TestCase):
    def setUp(self):
        self.text = render.markdown(sample.run(), [("Durable", "durable.svg")])

    def test_a_figure_is_a_ratio_with_the_absolute_and_the_range(self):
        self.assertIn("| ShaleFS | **0.80** · 800 (700–850) |", self.text)

    def test_losses_are_named(self):
        self.assertIn("close: ext4 (0.8), btrfs-zstd1 (0.64)", self.text)

    def test_what_is_missing_is_said(self):
        self.assertIn("**Nothing was measured on a throttled device:** no such file.", self.text)
        self.assertIn("Not measured: ADIOS2: no Blosc.", self.text)
        self.assertIn("Not measured: bindfs on ext4: not installed.", self.text)
        self.assertIn("| 1 MiB writes, durable, 200 MB/s: by ext4 | ≥ 1.5 |  | not measured |", self.text)

    def test_applications_are_compared_with_chunked_files_on_ext4(self):
        self.assertIn("| one | **0.38** · 150 | 1.5 |", self.text)

    def test_the_rows_of_every_table_are_as_wide_as_its_header(self):
        width = None
        for line in self.text.splitlines():
            if line.startswith("|"):
                count = line.count("|")
                self.assertIn(width, (None, count), line)
                width = count
            else:
                width = None

    def test_results_survive_json(self):
        again = json.loads(json.dumps(sample.run()))
        self.assertEqual(render.markdown(again, [("Durable", "durable.svg")]), self.text)

    def test_only_what_is_between_the_markers_is_replaced(self):
        document = f"before\n{render.BEGIN}\nold\n{render.END}\nafter\n"
        once = render.replace(document, "new\n")
        self.assertEqual(once, f"before\n{render.BEGIN}\n\nnew\n\n{render.END}\nafter\n")
        self.assertEqual(render.replace(once, "new\n"), once)
        with self.assertRaises(ValueError):
            render.replace("no markers", "new")

    def test_plots_are_well_formed_and_escaped(self):
        picture = plot.bars("a < b", "MB/s", [("one & two", "shale", Sample((1, 2, 3)))])
        self.assertIn("one & two", "".join(xml.fromstring(picture).itertext()))

    def test_plots_name_figures_that_exist(self):
        for _, bench, device, _, metric, _ in render.PLOTS:
            module = workloads.load(bench)
            self.assertIn(device, module.DEVICES)
            self.assertIn(metric, module.METRICS)
