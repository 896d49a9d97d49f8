"""What was measured: kept a value at a time, shown as medians with their spread."""
import csv
import statistics

TITLES = {"apache": "Kafka", "kavka": "kavka", "bare": "limit", "rivine": "rivine", "tansu": "tansu"}
OF_EVERY_TABLE = ("apache", "kavka", "bare")


class Figures:
    """Values by (bench, figure, unit, whether lower is better), then by system, one a round."""

    def __init__(self):
        self.values = {}
        self.failures = []
        # Of others' brokers: told, and no failure of the run.
        self.peer_failures = []

    def add(self, bench, figure, unit, better, system, value):
        self.values.setdefault((bench, figure, unit, better), {}).setdefault(system, []).append(value)

    def rows(self):
        for (bench, figure, unit, better), by_system in self.values.items():
            yield bench, figure, unit, better, by_system

    def write_csv(self, path):
        with open(path, "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(["bench", "figure", "unit", "better", "system", "round", "value"])
            for bench, figure, unit, better, by_system in self.rows():
                for system, values in by_system.items():
                    for index, value in enumerate(values, 1):
                        writer.writerow([bench, figure, unit, better, system, index, f"{value:.6g}"])

    @staticmethod
    def read_csv(path):
        figures = Figures()
        with open(path, newline="") as lines:
            for row in csv.DictReader(lines):
                figures.add(row["bench"], row["figure"], row["unit"], row["better"], row["system"],
                            float(row["value"]))
        return figures


def number(value):
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def spread(values):
    """The median, and in brackets the least and the greatest."""
    if not values:
        return "-"
    if len(values) == 1:
        return number(values[0])
    return f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"


def ratio(by_system):
    """kavka's median in Kafka's."""
    if not by_system.get("apache") or not by_system.get("kavka"):
        return None
    apache = statistics.median(by_system["apache"])
    return statistics.median(by_system["kavka"]) / apache if apache else None


def table(figures):
    """The rows as text: aligned Markdown."""
    peers = sorted({kind for *_, by_system in figures.rows() for kind in by_system} - set(OF_EVERY_TABLE))
    header = ["", "unit", "Kafka", "kavka", "kavka/Kafka", "limit", "kavka/limit"] + [TITLES[kind] for kind in peers]
    lines, last = [], None
    for bench, figure, unit, better, by_system in figures.rows():
        if bench != last:
            lines.append([f"**{bench}**"] + [""] * (len(header) - 1))
            last = bench
        share = ratio(by_system)
        limit = by_system.get("bare")
        to_limit = ""
        if limit and by_system.get("kavka") and statistics.median(limit):
            to_limit = number(statistics.median(by_system["kavka"]) / statistics.median(limit))
        lines.append([figure, f"{unit} {'▾' if better == 'lower' else '▴'}", spread(by_system.get("apache")),
                      spread(by_system.get("kavka")), "" if share is None else number(share),
                      spread(limit) if limit else "", to_limit]
                     + [spread(by_system[kind]) if by_system.get(kind) else "" for kind in peers])
    widths = [max(len(line[column]) for line in [header] + lines) for column in range(len(header))]

    def shown(line):
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"

    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return "\n".join([shown(header), rule] + [shown(line) for line in lines])
