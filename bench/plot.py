"""Bar charts as SVG, by hand: they need no library and read well beside text."""
from html import escape

COLOURS = {"shale": "#b5541c", "shale-direct": "#d98a56", "ext4": "#55606b", "bindfs": "#9aa4ad"}
OTHER = "#7f96b2"
BAR, GAP, LEFT, WIDTH, RIGHT = 18, 6, 230, 380, 150


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def bars(title, unit, rows):
    """`rows`: (label, peer, sample). Bars are medians, whiskers the range of the repetitions."""
    top, step = 40, BAR + GAP
    height = top + step * len(rows) + 10
    most = max((sample.high for _, _, sample in rows), default=1) or 1
    scale = WIDTH / most
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="20" font-size="14" font-weight="bold">{escape(title)} ({escape(unit)})</text>',
    ]
    for place, (label, peer, sample) in enumerate(rows):
        y = top + place * step
        middle = y + BAR / 2
        low, high, length = (LEFT + value * scale for value in (sample.low, sample.high, sample.median))
        lines += [
            f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{length - LEFT:.1f}" height="{BAR}" fill="{COLOURS.get(peer, OTHER)}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {y + 4}v{BAR - 8}M{high:.1f} {y + 4}v{BAR - 8}" '
            'stroke="black" fill="none"/>',
            f'<text x="{max(high, length) + 6:.1f}" y="{middle + 4}">{number(sample.median)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
