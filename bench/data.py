"""The data, made from fixed seeds, so that every run has the same bytes."""
import os

import numpy as np

#: Side of one turbulence field; a field has 16 MiB.
SIDE = 2048


def turbulence(rng, shape, exponent=-5 / 3):
    """A periodic random field whose energy spectrum falls as k^exponent; deviation 1."""
    axes = [np.fft.fftfreq(n) * n for n in shape[:-1]] + [np.fft.rfftfreq(shape[-1]) * shape[-1]]
    k = np.sqrt(sum(a**2 for a in np.meshgrid(*axes, indexing="ij", sparse=True)))
    k[(0,) * len(shape)] = np.inf
    amplitude = np.sqrt(k**exponent / k ** (len(shape) - 1))
    noise = rng.standard_normal(k.shape) + 1j * rng.standard_normal(k.shape)
    field = np.fft.irfftn(noise * amplitude, shape, axes=range(len(shape)))
    return field / field.std()


def wind(size, cache):
    """`size` bytes of float32: plane turbulence about a mean wind of 20. Kept in `cache`."""
    path = os.path.join(cache, "wind.f32")
    have = os.path.getsize(path) if os.path.exists(path) else 0
    step = SIDE * SIDE * 4
    with open(path, "ab") as file:
        for number in range(have // step, -(-size // step)):
            rng = np.random.default_rng([2026, number])
            (turbulence(rng, (SIDE, SIDE)) + 20).astype("<f4").tofile(file)
    with open(path, "rb") as file:
        return np.fromfile(file, "<f4", size // 4)


def smooth(*shape):
    """A 4-D temperature: waves along every axis and a little noise."""
    rng = np.random.default_rng(1)
    value = np.zeros(shape, "f4")
    for axis, length in enumerate(shape):
        wave = np.sin(np.linspace(0, 3 + 2 * axis, length)).astype("f4")
        value += wave.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return 280 + 9 * value + np.float32(0.01) * rng.standard_normal(shape, dtype="f4")


def blocks(count, seed):
    """AMR blocks of 16^3 float32, two in five of them fill."""
    rng = np.random.default_rng(seed)
    coarse = turbulence(rng, (64, 64, 64)) * 1e5
    result = np.full((count, 16, 16, 16), np.float32(9.96921e36))
    for block in result:
        if rng.random() < 0.6:
            z, y, x = rng.integers(0, 48, 3)
            block[:] = coarse[z : z + 16, y : y + 16, x : x + 16]
    return result


def mixed(share, size, seed):
    """Bytes of which `share` percent is random, in pieces of 4 KiB, and the rest zero."""
    rng = np.random.default_rng([share, seed])
    result = np.zeros(size, np.uint8)
    pieces = result.reshape(-1, 4096)
    picks = rng.permutation(len(pieces))[: round(len(pieces) * share / 100)]
    pieces[picks] = rng.integers(0, 256, (len(picks), 4096), dtype=np.uint8)
    return result
