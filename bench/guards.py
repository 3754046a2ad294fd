"""What it costs to find that a captured model is still the model that was captured.

usage: guards.py [--layers 3 12 48] [--seconds S] [--realtime]
A layer is a block of LayerNorm and Linear with a residual: four parameters, three modules; the last
row is BERT (12 layers, 768 wide). Each figure is the least of many rounds, in nanoseconds a check:
  quiet      Python structure (modules, their attributes and dicts, types, globals); no dict of the
             process was written since the last check
  written    the same where some dict was: the version of every dict of the model is compared
  tensors    all that is looked at of the parameters and the argument, and holding them (all -
             quiet)
  all        the whole check, quiet; per parameter beside it
  call       a call of the compiled model whose graph does nothing: guards, binding of arguments,
             result
"""

import argparse
import os
import time

import torch

import cases
import oxyfuel


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


def run(model, x):
    return model(x)


def least(measure, seconds):
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = min(best, measure())
    return best


def time_of_call(call, rounds):
    start = time.perf_counter()
    for _ in range(rounds):
        call()
    return (time.perf_counter() - start) / rounds * 1e9


def blocks(layers):
    model = torch.nn.Sequential(*(Block(8) for _ in range(layers))).eval()
    return model, torch.randn(2, 8)


def bert():
    return cases.huggingface("BertModel", "BertConfig"), cases.tokens(1, 128)


def figures(model, x, seconds):
    compiled = oxyfuel.compile(run, backend=lambda gm, inputs: lambda *tensors: tensors[:2])
    compiled(model, x)
    (program,) = compiled.guards()
    written, rounds = {}, 80000 // sum(1 for _ in model.parameters())

    def check(**options):
        return least(lambda: program.nanoseconds((model, x), rounds, **options), seconds)

    every = check()
    quiet = check(tensors=False)
    return {
        "parameters": sum(1 for _ in model.parameters()),
        "quiet": quiet,
        "written": check(tensors=False, written=written),
        "tensors": every - quiet,
        "all": every,
        "call": least(lambda: time_of_call(lambda: compiled(model, x), rounds), seconds),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[3, 12, 48])
    parser.add_argument("--seconds", type=float, default=0.5, help="spent on each figure")
    parser.add_argument("--realtime", action="store_true", help="before all other work (as root)")
    options = parser.parse_args()
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    torch.set_num_threads(1)
    names = ["layers", "parameters", "quiet", "written", "tensors", "all", "call"]
    print("".join(f"{name:>12}" for name in [*names, "ns/param"]))
    with torch.no_grad():
        for layers in [*options.layers, "bert"]:
            model, x = bert() if layers == "bert" else blocks(layers)
            row = figures(model, x, options.seconds)
            per_parameter = row["all"] / row["parameters"]
            print(
                f"{layers:>12}"
                + "".join(f"{row[name]:12.0f}" for name in names[1:])
                + f"{per_parameter:12.1f}"
            )


if __name__ == "__main__":
    main()
