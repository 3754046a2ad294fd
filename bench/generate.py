"""Text generation with a growing cache (transformers' DynamicCache): tokens a second of eager and
of ours, greedy, one process, in turn.

usage: generate.py [MODEL...] [--tokens N] [--rounds N] [--threads N]

A row a model: tokens a second of eager, of ours, the quotient, how often ours was captured, and
whether both gave the same tokens.
"""

import argparse
import time
import warnings

import torch
import transformers as tf

import oxyfuel

SMALL = {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "vocab_size": 8000}
MODELS = {
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(n_layer=12, vocab_size=8000)),
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**SMALL, intermediate_size=1408)),
    "qwen2": lambda: tf.Qwen2ForCausalLM(
        tf.Qwen2Config(**SMALL, intermediate_size=1408, num_key_value_heads=2)
    ),
    "mistral": lambda: tf.MistralForCausalLM(
        tf.MistralConfig(**SMALL, intermediate_size=1408, num_key_value_heads=2)
    ),
    "opt": lambda: tf.OPTForCausalLM(
        tf.OPTConfig(**SMALL, ffn_dim=2048, word_embed_proj_dim=512, do_layer_norm_before=True)
    ),
}


def measure(name, tokens, rounds):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    prompt = torch.randint(1, 8000, (1, 12))
    oxyfuel.reset()
    eager, ours = model.forward, oxyfuel.compile(model.forward)
    best, made = {}, {}
    for i in range(rounds + 1):
        for kind, forward in (("eager", eager), ("ours", ours)):
            model.forward = forward
            start = time.perf_counter()
            made[kind] = model.generate(
                prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
            )
            if i > 0:  # behind the compilations
                best[kind] = min(best.get(kind, float("inf")), time.perf_counter() - start)
    per_second = {kind: tokens / seconds for kind, seconds in best.items()}
    stats = oxyfuel.stats()
    print(
        f"{name:10} {per_second['eager']:8.1f} {per_second['ours']:8.1f}"
        f" {per_second['ours'] / per_second['eager']:6.2f} {stats['recompiles'] + 1:4}"
        f"  {'equal' if torch.equal(made['eager'], made['ours']) else 'DIFFERENT'}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    tf.logging.set_verbosity_error()
    print("model      eager/s   ours/s  times captures")
    with torch.no_grad():
        for name in options.models:
            measure(name, options.tokens, options.rounds)


if __name__ == "__main__":
    main()
