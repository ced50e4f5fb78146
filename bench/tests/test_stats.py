"""Medians and percentiles."""
import unittest

from bench.stats import Sample, geometric_mean, percentile, ratio


class Stats(unittest.TestCase):
    def test_one_outlier_does_not_move_the_median(self):
        sample = Sample((100.0, 900.0, 110.0))
        self.assertEqual(sample.median, 110.0)
        self.assertEqual((sample.low, sample.high), (100.0, 900.0))

    def test_ratio_is_of_medians(self):
        self.assertEqual(ratio(Sample((1, 2, 9)), Sample((4, 4, 1))), 0.5)

    def test_there_is_no_ratio_to_nothing(self):
        self.assertIsNone(ratio(Sample((1,)), None))
        self.assertIsNone(ratio(Sample((1,)), Sample((0,))))

    def test_percentiles_are_values_that_occurred(self):
        values = list(range(100, 0, -1))
        self.assertEqual(percentile(values, 0.99), 99)
        self.assertEqual(percentile(values, 0.5), 50)
        self.assertEqual(percentile(values, 1), 100)
        self.assertEqual(percentile([7], 0.01), 7)

    def test_geometric_mean(self):
        self.assertAlmostEqual(geometric_mean([1, 4]), 2)
