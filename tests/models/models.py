"""Architectures of transformers through oxyfuel.compile, against eager and against TorchDynamo's
recorded cuts.

usage: python tests/models/models.py [--record] [--lengths | --train] [--backend NAME] [--jobs N]
[--write FILE] [NAME ...]

Without NAME: all of them. --record runs TorchDynamo and writes its graphs and breaks to dynamo.txt
(with --train to dynamo_training.txt); every other run reads them there. --lengths calls each at
three sizes (lengths of text or sound, else image sizes, else batches), which is to take one
recompile of each graph. --train takes training steps.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("dynamo.txt")
RECORDED_OF_TRAINING = Path(__file__).with_name("dynamo_training.txt")
HEADING = """# Architectures of transformers against eager and TorchDynamo

Written by `./dev models`. Small configurations with random weights, two calls of each: the values,
dtypes, strides and structure of the result and the state left behind are compared with eager.
Graphs and breaks of the first call, beside those of `torch.compile(backend="eager")` as recorded in
`tests/models/dynamo.txt`.

"""


HEADING_OF_SIZES = """# Architectures of transformers at several sizes

Written by `./dev models --lengths --write docs/models_sizes.md`. The models of
[models.md](models.md), each called at three sizes (two where it takes no third one) and at the
first one again through one `oxyfuel.compile`: the results and the state left behind are compared
with eager. Graphs and breaks of the first call, and of all four: the first size is captured with
numbers, the second with symbols, and that serves the others.

Where it does not, the model's code does something else for another size: recurrent_gemma
(`_rnn_scan`) and rwkv (`rwkv_linear_attention_cpu`) loop over the length, funnel makes a list of
positions (`get_position_embeds`), longt5 pads where blocks do not fill up (`_split_into_blocks`),
mobilenet_v1 and mobilenet_v2 where a stride does not (`apply_tf_padding`), and mobilevit resizes
where patches do not (`unfolding`). In mobilevitv2 `expand_as` gives one patch, in eager, a stride
that several do not have.

"""

HEADING_OF_TRAINING = """# Training steps of architectures of transformers

Written by `./dev models --train --write docs/models_training.md`. The models of
[models.md](models.md) in training mode, two steps of each: forward with dropout as the
configuration has it, loss, backward. The loss is the model's own where it has one for language
modelling ("own loss"), else the mean square of the outputs' distance from random numbers. Results,
losses, the gradients of all parameters (None where eager has None), buffers and the state of the
generators behind the steps are compared with eager from the same seed. Graphs and breaks of the
first forward, beside those of `torch.compile(backend="eager")` as recorded in
`tests/models/dynamo_training.txt`.

"""


def recorded(path: Path = RECORDED) -> dict[str, tuple[int, int]]:
    """TorchDynamo's graphs and breaks by model."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return {name: (int(graphs), int(breaks)) for name, graphs, breaks in rows}


def write_recorded(path: Path, found: dict[str, tuple[int, int]]) -> None:
    """Keeps what was found, and what was recorded of the others."""
    rows = sorted({**recorded(path), **found}.items())
    how = "./dev models --record" + " --train" * (path == RECORDED_OF_TRAINING)
    path.write_text(
        "# graphs and breaks of torch.compile(backend='eager'), torch 2.13, transformers 5.23; by "
        f"{how}\n" + "".join(f"{name} {graphs} {breaks}\n" for name, (graphs, breaks) in rows)
    )


def work(task: tuple[str, str]) -> tuple[str, Any]:
    """One case in a process of the pool: what came of it, or the text of an exception."""
    import torch
    import transformers
    from model_cases import CASES
    from model_check import check, check_sizes, dynamo_counts
    from model_training import check_training, dynamo_training_counts

    name, what = task
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    case = next(c for c in CASES if c.name == name)
    try:
        if what == "dynamo":
            return name, tuple(dynamo_counts(case))
        if what == "dynamo train":
            return name, tuple(dynamo_training_counts(case))
        if what == "train":
            return name, check_training(case)
        return name, check_sizes(case) if what == "lengths" else check(case, backend=what)
    except Exception as e:
        return name, f"{type(e).__name__}: " + " ".join(str(e).split())[:300]


def verdict(found: Any, theirs: tuple[int, int] | None) -> str:
    """What is wrong with a case; empty where nothing is."""
    if isinstance(found, str):
        return found
    if found.difference:
        return found.difference
    if theirs is None:
        return "not recorded"
    graphs, breaks = found.counted
    if theirs[0] and breaks > theirs[1]:  # without a graph it has left all to eager
        return f"{breaks} breaks, TorchDynamo has {theirs[1]}"
    if theirs == (1, 0) and graphs != 1:
        return f"{graphs} graphs, TorchDynamo has one"
    return ""


def verdict_of_sizes(found: Any) -> str:
    """The same of a case at several sizes."""
    if isinstance(found, str):
        return found
    if found.difference:
        return found.difference
    if found.way == "nothing":
        return "no other size"
    if found.static:
        return f"{found.static} captures of single sizes"
    if found.captures > 2 * found.graphs:
        return f"{found.captures} graphs in all"
    if found.all_breaks > 2 * found.breaks:
        return f"{found.all_breaks} breaks in all"
    return ""


def table_of_sizes(rows: list[tuple[Any, Any]]) -> str:
    """The table of all cases at several sizes, and its sums."""
    lines = [
        "| family | model | what varies | graphs | in all | breaks | in all | |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for case, found in rows:
        counts = ("",) * 5
        if not isinstance(found, str):
            counts = (found.way, found.graphs, found.captures, found.breaks, found.all_breaks)
        cells = (case.family, case.name, *counts, verdict_of_sizes(found))
        lines.append("| " + " | ".join(str(c).replace("|", "/") for c in cells) + " |")
    right = sum(not isinstance(found, str) and not found.difference for _, found in rows)
    good = sum(not verdict_of_sizes(found) for _, found in rows)
    return "\n".join(lines) + (
        f"\n\n{len(rows)} models: {right} right, {good} by one recompile of each graph at most.\n"
    )


def table(rows: list[tuple[Any, Any, tuple[int, int] | None]], training: bool = False) -> str:
    """The table of all cases, and its sums."""
    lines = [
        "| family | model |" + " own loss |" * training + " graphs | breaks | TorchDynamo's graphs "
        "| breaks | |",
        "| --- | --- |" + " --- |" * training + " ---: | ---: | ---: | ---: | --- |",
    ]
    for case, found, theirs in rows:
        ours = ("", "") if isinstance(found, str) else found.counted
        if training:
            ours = ("" if isinstance(found, str) or not found.own_loss else "yes", *ours)
        cells = (case.family, case.name, *ours, *(theirs or ("", "")), verdict(found, theirs))
        lines.append("| " + " | ".join(str(c).replace("|", "/") for c in cells) + " |")
    good = sum(not verdict(found, theirs) for _, found, theirs in rows)
    right = sum(not isinstance(found, str) and not found.difference for _, found, _ in rows)
    one = sum(not isinstance(found, str) and found.counted == (1, 0) for _, found, _ in rows)
    theirs_one = sum(theirs == (1, 0) for _, _, theirs in rows)
    return "\n".join(lines) + (
        f"\n\n{len(rows)} models: {right} right, {one} in one graph (TorchDynamo: {theirs_one}), "
        f"{good} right with no more breaks than TorchDynamo.\n"
    )


def main() -> int:
    """Checks or records what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--record", action="store_true", help="run TorchDynamo, write its counts")
    parser.add_argument("--lengths", action="store_true", help="calls at several sizes")
    parser.add_argument("--train", action="store_true", help="training steps")
    parser.add_argument("--backend", default="native", help="of oxyfuel.compile")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--write", metavar="FILE", help="put the table into this file")
    a = parser.parse_args()
    os.environ.setdefault("OXYFUEL_STRICT", "1")
    from model_cases import CASES

    cases = [c for c in CASES if not a.names or c.name in a.names]
    start = time.monotonic()
    found: dict[str, Any] = {}
    context = multiprocessing.get_context("spawn")
    what = "train" if a.train else "lengths" if a.lengths else a.backend
    if a.record:
        what = "dynamo train" if a.train else "dynamo"
    path = RECORDED_OF_TRAINING if a.train else RECORDED
    with context.Pool(a.jobs, maxtasksperchild=40) as pool:
        for name, result in pool.imap_unordered(work, [(c.name, what) for c in cases]):
            found[name] = result
            text = result
            if a.lengths:
                text = verdict_of_sizes(result)
            elif not a.record:
                text = verdict(result, recorded(path).get(name))
            print(f"{name}: {text or 'as in eager'}", flush=True)
    print(f"{time.monotonic() - start:.0f} seconds")
    if a.record:
        write_recorded(path, {n: r for n, r in found.items() if isinstance(r, tuple)})
        return 0
    if a.lengths:
        pairs = [(c, found[c.name]) for c in cases]
        text = table_of_sizes(pairs)
        bad = any(verdict_of_sizes(r) for _, r in pairs)
    else:
        rows = [(c, found[c.name], recorded(path).get(c.name)) for c in cases]
        text = table(rows, a.train)
        bad = any(verdict(r, t) for _, r, t in rows)
    print(text, end="")
    if a.write:
        heading = HEADING_OF_TRAINING if a.train else HEADING_OF_SIZES if a.lengths else HEADING
        Path(a.write).write_text(heading + text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
