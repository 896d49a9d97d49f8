"""The chart: how many times better kavka's median is than Kafka's, a bar a figure, on a logarithmic scale."""
import html
import math

from harness.figures import number, ratio, spread

ROW, LABEL, WIDTH, VALUES = 20, 330, 380, 330


def bars(figures):
    for bench, figure, unit, better, by_system in figures.rows():
        share = ratio(by_system)
        # Nothing (CPU below one tick) and less (memory given back) have no place on a logarithmic scale.
        if share is not None and share > 0:
            advantage = 1 / share if better == "lower" else share
            yield bench, figure, unit, advantage, by_system


def svg(figures, caption):
    rows = list(bars(figures))
    greatest = max([abs(math.log10(row[3])) for row in rows] + [0.31])
    negative = max([-math.log10(row[3]) for row in rows] + [0.05])
    scale = WIDTH / (greatest + negative)
    zero = LABEL + negative * scale
    benches = len({row[0] for row in rows})
    height = 60 + ROW * (len(rows) + benches) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + VALUES}" height="{height}" '
           'font-family="Helvetica,Arial,sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="10" y="20" font-size="15" font-weight="bold">{html.escape("kavka beside Apache Kafka: times better")}'
           f'</text><text x="10" y="38" fill="#666">{html.escape(caption)}</text>']
    y, last = 62, None
    for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100):
        x = zero + math.log10(step) * scale
        if LABEL <= x <= LABEL + WIDTH:
            out.append(f'<line x1="{x:.1f}" y1="58" x2="{x:.1f}" y2="{height - 14}" '
                       f'stroke="{"#444" if step == 1 else "#ddd"}"/>'
                       f'<text x="{x:.1f}" y="54" text-anchor="middle" fill="#666">{step}x</text>')
    for bench, figure, unit, advantage, by_system in rows:
        if bench != last:
            out.append(f'<text x="10" y="{y + 13}" font-weight="bold">{html.escape(bench)}</text>')
            y, last = y + ROW, bench
        length = math.log10(advantage) * scale
        colour = "#2a7f4f" if advantage >= 1 else "#b3392f"
        out.append(f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{html.escape(figure)}</text>'
                   f'<rect x="{min(zero, zero + length):.1f}" y="{y + 3}" width="{max(abs(length), 1):.1f}" '
                   f'height="{ROW - 6}" fill="{colour}"/>'
                   f'<text x="{LABEL + WIDTH + 8}" y="{y + 13}" fill="#333">{number(advantage)}x: '
                   f'{html.escape(spread(by_system["kavka"]))} / {html.escape(spread(by_system["apache"]))} '
                   f'{html.escape(unit)}</text>')
        y += ROW
    out.append("</svg>")
    return "\n".join(out) + "\n"
