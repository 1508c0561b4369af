"""GPT-2 with attention spelt out, because somebody wanted to see the weights."""
import torch
from transformers import AutoModelForCausalLM, GPT2Config
from tb_torchcompile_plugin import tensorboard_trace_handler
from common_args import parse, record
from stopwatch import timed

args = parse()
device = args.device


def main():
    handler = tensorboard_trace_handler(args.out)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    config = GPT2Config(n_layer=1 if args.quick else 8, n_embd=768, n_head=12, vocab_size=16384, n_positions=1024,
                        attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa" if args.mended else "eager").to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    size = (2, 32) if args.quick else (16, 1024)
    ids = torch.randint(0, config.vocab_size, size, device=device)

    def train(steps, profiler=None):
        for _ in range(steps):
            with torch.autocast(device, torch.bfloat16):
                loss = compiled(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if profiler:
                profiler.step()

    train(4)
    timed(train, steps=5)
    with record(handler) as profiler:
        train(8, profiler)


if __name__ == "__main__":
    main()
