"""Training steps of BERT-base in plain torch code, with random weights and tokens: what transformers' BertForSequenceClassification does.

    python bert.py --variant fp32|eager|amp|bf16|ckpt --batch 32 --seq 512 --steps 3 [--plugin LIB.so --strategy SPEC --trace FILE --summary FILE]

Prints one JSON object: peaks as torch reports them (not with a plugin), ns of each step, the losses. Exit 6 without PyTorch or CUDA.
"""

import argparse
import json
import math
import os
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    print(f"bert.py: torch cannot be imported ({error})", file=sys.stderr)
    sys.exit(6)

HIDDEN, HEADS, LAYERS, INNER, VOCABULARY, POSITIONS = 768, 12, 12, 3072, 30522, 512


class Layer(nn.Module):
    def __init__(self, eager):
        super().__init__()
        self.eager = eager
        self.query, self.key, self.value, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.up, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN, eps=1e-12), nn.LayerNorm(HIDDEN, eps=1e-12)
        self.drop = nn.Dropout(0.1)

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], HEADS, HIDDEN // HEADS).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        if self.eager:
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(HIDDEN // HEADS)
            mixed = torch.matmul(self.drop(scores.softmax(-1)), v)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)
        mixed = mixed.transpose(1, 2).reshape(x.shape)
        x = self.norm1(self.drop(self.out(mixed)) + x)
        return self.norm2(self.drop(self.down(F.gelu(self.up(x)))) + x)


class Bert(nn.Module):
    def __init__(self, eager, recompute):
        super().__init__()
        self.words, self.types = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=0), nn.Embedding(2, HIDDEN)
        self.places = nn.Embedding(POSITIONS, HIDDEN)
        self.norm, self.drop = nn.LayerNorm(HIDDEN, eps=1e-12), nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(eager) for _ in range(LAYERS))
        self.pool, self.classes = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 2)
        self.recompute = recompute

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.types(torch.zeros_like(tokens)) + self.places(places)
        x = self.drop(self.norm(x))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return self.classes(self.drop(torch.tanh(self.pool(x[:, 0]))))


def main():
    parser = argparse.ArgumentParser(description="Training steps of BERT-base.")
    parser.add_argument("--variant", choices=("fp32", "eager", "amp", "bf16", "ckpt"), default="fp32")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--plugin", metavar="LIB.so")
    parser.add_argument("--strategy")
    parser.add_argument("--trace")
    parser.add_argument("--summary")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"bert.py: PyTorch {torch.__version__} finds no CUDA device", file=sys.stderr)
        return 6
    if args.plugin:
        here = os.path.dirname(os.path.abspath(__file__))
        sys.path.insert(0, os.path.join(here, "..", "torch-plugin"))
        import vramlab_torch

        vramlab_torch.use(args.plugin, args.strategy, args.trace, args.summary)
    # the phase's name for a recording, if torch's own allocator is there to take it
    tell = None if args.plugin else getattr(torch.cuda.memory, "_set_memory_metadata", None)
    phase = tell or (lambda name: None)
    torch.manual_seed(0)
    phase("model to device")
    model = Bert(args.variant == "eager", args.variant == "ckpt").to("cuda").train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5)
    precision = {"amp": torch.float16, "bf16": torch.bfloat16}.get(args.variant)
    scaler = torch.amp.GradScaler("cuda", enabled=args.variant == "amp")
    times, losses = [], []
    for step in range(args.steps):
        torch.cuda.synchronize()
        begun = time.perf_counter_ns()
        phase(f"step {step} batch")
        tokens = torch.randint(1, VOCABULARY, (args.batch, args.seq)).to("cuda")
        labels = torch.randint(0, 2, (args.batch,)).to("cuda")
        phase(f"step {step} forward")
        with torch.autocast("cuda", dtype=precision or torch.float16, enabled=precision is not None):
            loss = F.cross_entropy(model(tokens), labels)
        phase(f"step {step} backward")
        scaler.scale(loss).backward()
        phase(f"step {step} optimiser")
        scaler.unscale_(optimiser)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.item())
        torch.cuda.synchronize()
        times.append(time.perf_counter_ns() - begun)
    found = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0), "variant": args.variant, "batch": args.batch, "seq": args.seq}
    found.update(step_ns=times, losses=losses, plugin=args.strategy if args.plugin else None)
    if not args.plugin:
        found.update(peak_allocated=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved())
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
