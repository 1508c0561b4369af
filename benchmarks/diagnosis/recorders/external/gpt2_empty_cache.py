"""GPT-2 that once ran out of memory: since then each step gives the memory back."""
import gc
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from tb_torchcompile_plugin import tensorboard_trace_handler
from common_args import parse, record
from stopwatch import timed

args = parse()
device = args.device


def free_memory():
    if not args.mended:
        torch.cuda.empty_cache()


def main():
    handler = tensorboard_trace_handler(args.out)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    config = GPT2Config(n_layer=1 if args.quick else 6, n_embd=768, n_head=12, vocab_size=32000, n_positions=1024)
    model = GPT2LMHeadModel(config).to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    size = (2, 32) if args.quick else (4, 1024)
    data = [torch.randint(0, config.vocab_size, size) for _ in range(8)]

    def train(steps, profiler=None):
        for step in range(steps):
            ids = data[step % len(data)].to(device)
            with torch.autocast(device, torch.bfloat16):
                loss = compiled(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            free_memory()
            if profiler:
                profiler.step()

    train(5)
    timed(train)
    with record(handler) as profiler:
        train(8, profiler)


if __name__ == "__main__":
    main()
