"""Medians, spreads and ratios of repeated measurements."""
import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """The repetitions of one figure, in the order they were taken."""

    values: tuple

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def low(self):
        return min(self.values)

    @property
    def high(self):
        return max(self.values)

    @property
    def spread(self):
        """Width of the range in parts of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def ratio(sample, base):
    """Ratio of medians, or None where there is nothing to compare with."""
    if sample is None or base is None or base.median == 0:
        return None
    return sample.median / base.median


def percentile(values, share):
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    rank = math.ceil(share * len(ordered))
    return ordered[max(rank, 1) - 1]


def geometric_mean(values):
    return statistics.geometric_mean(values)
