"""Where the broker spends its time in a bench: perf by the CPU clock (needs no hardware counters), a report and a flame
graph of our own drawing."""
import html
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib

from harness.benches import Round
from harness.figures import Figures, table
from harness.systems import System

ROW, WIDTH = 17, 1400


def fold(script):
    """perf script's samples as {(outermost, ..., innermost): count}."""
    stacks, stack, thread = {}, [], None
    for line in script:
        if not line.strip():
            if thread and stack:
                key = (thread, *reversed(stack))
                stacks[key] = stacks.get(key, 0) + 1
            stack, thread = [], None
        elif not line[0].isspace():
            thread = line.strip()
        else:
            address, _, symbol = line.strip().partition(" ")
            symbol = re.sub(r"\+0x[0-9a-f]+$", "", symbol or address)
            stack.append(re.sub(r"::h[0-9a-f]{16}$", "", symbol))
    return stacks


def flame_graph(stacks, title):
    """The stacks as SVG: width is the share of samples, the hottest path reads from the bottom up."""
    tree = {"count": 0, "children": {}}
    for stack, count in stacks.items():
        node = tree
        node["count"] += count
        for frame in stack:
            node = node["children"].setdefault(frame, {"count": 0, "children": {}})
            node["count"] += count
    total = max(tree["count"], 1)

    def depth(node):
        return 1 + max([depth(child) for child in node["children"].values()], default=0)

    height = (depth(tree) + 2) * ROW + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="monospace" '
           f'font-size="11"><rect width="100%" height="100%" fill="#fff"/><text x="8" y="14">{html.escape(title)}: '
           f'{total} samples</text>']

    def draw(node, left, level):
        for name, child in sorted(node["children"].items()):
            width = child["count"] / total * WIDTH
            if width >= 0.5:
                y = height - (level + 1) * ROW - 4
                hue = 20 + zlib.crc32(name.encode()) % 40
                label = html.escape(name[:int(width / 6.7)]) if width > 30 else ""
                out.append(f'<g><title>{html.escape(name)} ({child["count"] / total:.1%})</title><rect x="{left:.1f}" '
                           f'y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="hsl({hue},80%,65%)"/>'
                           f'<text x="{left + 2:.1f}" y="{y + 12}">{label}</text></g>')
                draw(child, left, level + 1)
            left += width

    draw(tree, 0.0, 0)
    out.append("</svg>")
    return "\n".join(out) + "\n"


def shares(stacks, lines=60):
    """Functions by their own samples and by those of all below them."""
    own, below = {}, {}
    for stack, count in stacks.items():
        own[stack[-1]] = own.get(stack[-1], 0) + count
        for frame in set(stack):
            below[frame] = below.get(frame, 0) + count
    total = max(sum(own.values()), 1)

    def listing(counts):
        ranked = sorted(counts.items(), key=lambda item: -item[1])[:lines]
        return "\n".join(f"{count / total:7.2%}  {name[:150]}" for name, count in ranked)

    return f"{total} samples\n\nOwn time\n{listing(own)}\n\nWith all it calls\n{listing(below)}\n"


def profile(bench, options, work, results, load):
    """Runs one round of the bench on kavka (or --only) under perf."""
    kind = options.only if options.only in ("kavka", "apache", "bare") else "kavka"
    if shutil.which("perf") is None:
        sys.exit("scripts/bench profile needs perf (package linux-perf)")
    system = System(kind, work, load, options.set)
    figures = Figures()
    results.mkdir(parents=True, exist_ok=True)
    data = work / "perf.data"
    system.fresh()
    system.start()
    recorder = subprocess.Popen(
        ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "--call-graph", "dwarf,16384", "-p",
         str(system.process.pid), "-o", str(data)], stdout=subprocess.DEVNULL, stderr=sys.stderr)
    try:
        time.sleep(0.5)
        bench.function(Round(figures, bench.name, system, options), system)
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait()
        system.stop()
    script = subprocess.Popen(["perf", "script", "-i", str(data), "--no-inline", "-F", "comm,ip,sym"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace")
    stacks = fold(script.stdout)
    script.wait()
    name = f"profile-{bench.name}-{kind}"
    text = f"{table(figures)}\n\n{shares(stacks)}"
    (results / f"{name}.txt").write_text(text)
    (results / f"{name}.svg").write_text(flame_graph(stacks, name))
    (results / f"{name}.folded").write_text("\n".join(f"{';'.join(stack)} {count}" for stack, count in stacks.items()))
    print(text)
    print(f"written: {results}/{name}.txt, .svg, .folded", file=sys.stderr)
    return 0
