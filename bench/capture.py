"""What it costs to capture: BERT by its layers, graph breaks by their number, frames that are not captured.

usage: capture.py [--layers 12 24 48] [--breaks 1 5 20] [--rounds N]
  bert    from the call to the moment at which the back end is given the graph, in milliseconds of processor time and of
          wall time: the least and the median of N captures. Base size (hidden 768, 12 heads), random weights.
  breaks  the first call of a function with that many graph breaks in a row (backend "eager"), wall time, and how
          many times the first row
  frames  nanoseconds that a call of an empty function takes more, where the frame that calls it runs in eager and every
          frame inside passes our evaluator: of a function that is not compiled, and of one whose capture is in use
"""

import argparse
import statistics
import time

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
    options = parser.parse_args()
    with torch.no_grad():
        for layers in options.layers:
            model = bert(layers)
            inputs = {"input_ids": torch.randint(0, 1000, (1, 128))}
            cpu, wall = capture_times(model, inputs, options.rounds)
            print(
                f"bert {layers:3} layers  processor {min(cpu):7.1f} (median {statistics.median(cpu):.1f}) ms"
                f"  wall {min(wall):7.1f} (median {statistics.median(wall):.1f}) ms"
            )
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
