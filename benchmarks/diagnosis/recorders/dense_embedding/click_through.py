"""Click-through model: one large hashed embedding table, cross of features, compiled MLP."""
import torch, torch.nn as nn, torch.nn.functional as F
import bench

args = bench.arguments()
dev, rows, B = args.device, (1000 if args.tiny else 8_000_000), (64 if args.tiny else 8192)
torch.set_float32_matmul_precision("high")
prof = bench.profiler(args, stack=False)
FIELDS, DIM, DENSE = 26, 96, 13


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(DENSE, 256), nn.ReLU(), nn.Linear(256, DIM), nn.ReLU())
        pairs = (FIELDS + 1) * FIELDS // 2
        self.register_buffer("tri", torch.tril_indices(FIELDS + 1, FIELDS + 1, -1))
        self.top = nn.Sequential(nn.Linear(pairs + DIM, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, dense, emb):
        d = self.bottom(dense)
        z = torch.cat([d[:, None], emb], 1)
        inter = torch.bmm(z, z.transpose(1, 2))[:, self.tri[0], self.tri[1]]
        return self.top(torch.cat([d, inter], 1)).squeeze(-1)


table = nn.Embedding(rows, DIM, sparse=args.mended).to(dev)
tower = Tower().to(dev)
net = torch.compile(tower)
opt = torch.optim.Adam(tower.parameters(), lr=1e-3, fused=True)
if args.mended:
    opt_table = torch.optim.SparseAdam(table.parameters(), lr=1e-3)
else:
    opt_table = torch.optim.Adam(table.parameters(), lr=1e-3, fused=True)
ids = [torch.randint(0, rows, (B, FIELDS), device=dev) for _ in range(4)]
dense = [torch.randn(B, DENSE, device=dev) for _ in range(4)]
clicks = torch.randint(0, 2, (B,), device=dev).float()

with prof:
    for it in range(prof.total):
        loss = F.binary_cross_entropy_with_logits(net(dense[it % 4], table(ids[it % 4])), clicks)
        loss.backward()
        opt.step()
        opt_table.step()
        opt.zero_grad(set_to_none=True)
        opt_table.zero_grad(set_to_none=True)
        prof.step()
