"""What it costs to capture: BERT by its layers, graph breaks by their number, frames that are not
captured.

usage: capture.py [--layers 12 24 48] [--breaks 1 5 20] [--rounds N] [--plot FILE]
  bert    from the call to the moment at which the back end is given the graph, in milliseconds of
          processor time and of wall time: the least and the median of N captures. Base size (hidden
          768, 12 heads), random weights.
  breaks  the first call of a function with that many graph breaks in a row (backend "eager"), wall
          time, and how many times the first row
  frames  nanoseconds that a call of an empty function takes more, where the frame that calls it
          runs in eager and every frame inside passes our evaluator: of a function that is not
          compiled, and of one whose capture is in use
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

import oxyfuel


def bert(layers):
    import transformers

    config = transformers.BertConfig(num_hidden_layers=layers)
    return transformers.BertModel(config).eval()


def capture_times(model, inputs, rounds):
    cpu, wall = [], []
    for _ in range(rounds):
        oxyfuel.reset()
        at = {}

        def backend(graph, examples, at=at):
            at["cpu"], at["wall"] = time.process_time(), time.perf_counter()
            return graph.forward

        compiled = oxyfuel.compile(model, backend=backend)
        start = time.process_time(), time.perf_counter()
        compiled(**inputs)
        cpu.append((at["cpu"] - start[0]) * 1e3)
        wall.append((at["wall"] - start[1]) * 1e3)
    return cpu, wall


def plot(path, points):
    """An SVG of (layers, milliseconds), with the line through the origin and the first point."""
    width, height, left, top = 480, 280, 48, 12
    most_x = max(x for x, _ in points)
    most_y = 1.1 * max(max(y for _, y in points), points[0][1] * most_x / points[0][0])

    def at(x, y):
        right = left + x / most_x * (width - left - 16)
        up = height - 36 - y / most_y * (height - 36 - top)
        return f"{right:.1f},{up:.1f}"

    first_x, first_y = points[0]
    body = [
        f'<polyline points="{at(0, 0)} {at(most_x, first_y * most_x / first_x)}" stroke="#999" '
        'stroke-dasharray="4 4" fill="none"/>',
        f'<polyline points="{at(0, most_y)} {at(0, 0)} {at(most_x, 0)}" stroke="#333" '
        'fill="none"/>',
        f'<polyline points="{" ".join(at(x, y) for x, y in points)}" stroke="#06c" fill="none"/>',
    ]
    for x, y in points:
        cx, cy = at(x, y).split(",")
        body.append(f'<circle cx="{cx}" cy="{cy}" r="4" fill="#06c"/>')
        body.append(
            f'<text x="{float(cx) - 8}" y="{float(cy) - 10}" text-anchor="end">{y:.0f} ms</text>'
        )
        body.append(f'<text x="{cx}" y="{height - 18}" text-anchor="middle">{x}</text>')
    body.append(
        f'<text x="{width / 2}" y="{height - 3}" text-anchor="middle">layers of BERT-base</text>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    Path(path).write_text(
        head + 'font-family="sans-serif" font-size="12">\n' + "\n".join(body) + "\n</svg>\n"
    )


def broken(count):
    """A function with `count` graph breaks, one behind the other."""
    lines = ["    x = x.sin() + 1\n    graph_break()\n"] * count
    space = {"graph_break": oxyfuel.graph_break}
    exec("def f(x):\n" + "".join(lines) + "    return x * 2\n", space)
    return space["f"]


def first_call(count, rounds):
    times = []
    for _ in range(rounds):
        oxyfuel.reset()
        compiled = oxyfuel.compile(broken(count), backend="eager")
        x = torch.randn(4)
        start = time.perf_counter()
        compiled(x)
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)


def empty():
    pass


def calls_of(function, count):
    """Nanoseconds a call; reads its own frame, so that it is never captured."""
    locals()
    rounds = range(count)
    start = time.perf_counter_ns()
    for _ in rounds:
        function()
    return (time.perf_counter_ns() - start) / count


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, nargs="*", default=[12, 24, 48])
    parser.add_argument("--breaks", type=int, nargs="*", default=[1, 5, 20])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--plot", metavar="FILE", help="an SVG of the wall times of `bert`")
    options = parser.parse_args()
    points = []
    with torch.no_grad():
        for layers in options.layers:
            model = bert(layers)
            inputs = {"input_ids": torch.randint(0, 1000, (1, 128))}
            cpu, wall = capture_times(model, inputs, options.rounds)
            points.append((layers, min(wall)))
            print(
                f"bert {layers:3} layers  processor {min(cpu):7.1f} (median "
                f"{statistics.median(cpu):.1f}) ms"
                f"  wall {min(wall):7.1f} (median {statistics.median(wall):.1f}) ms"
            )
        if options.plot:
            plot(options.plot, points)
        base = None
        for count in options.breaks:
            least = first_call(count, options.rounds)
            base = base or least
            print(f"breaks {count:3}  {least:7.2f} ms  {least / base:5.1f} times the first row")
    space = {}
    exec("def skipped(): pass", space)  # of no file: such code is not compiled
    through = oxyfuel.compile(calls_of, backend="eager")
    plain = min(calls_of(empty, 100_000) for _ in range(options.rounds))
    for name, function in (("not compiled", space["skipped"]), ("captured", empty)):
        through(function, 1000)
        least = min(through(function, 100_000) for _ in range(options.rounds))
        print(f"frames {name}: {least - plain:.0f} ns more than {plain:.0f}")


if __name__ == "__main__":
    main()
