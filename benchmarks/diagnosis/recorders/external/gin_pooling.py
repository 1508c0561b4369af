"""A graph network of torch-geometric that reads out after each layer."""
import torch
from torch import nn
from torch_geometric.nn import GINConv, MLP, global_add_pool

GRAPHS = 256


class Net(nn.Module):
    def __init__(self, mended):
        super().__init__()
        self.size = GRAPHS if mended else None
        self.convs = nn.ModuleList(GINConv(MLP([128, 128, 128], norm=None)) for _ in range(6))
        self.outs = nn.ModuleList(nn.Linear(128, 10) for _ in range(6))

    def forward(self, x, edge_index, batch):
        scores = 0
        for conv, out in zip(self.convs, self.outs):
            x = conv(x, edge_index).relu()
            scores = scores + out(global_add_pool(x, batch, self.size))  # planted: asks how many graphs there are
        return scores


def train(watch):
    model = Net(watch.mended).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    nodes = GRAPHS * 30
    x = torch.randn(nodes, 128, device="cuda")
    batch = torch.arange(GRAPHS, device="cuda").repeat_interleave(30)
    edge_index = torch.randint(0, nodes, (2, nodes * 8), device="cuda")
    y = torch.randint(0, 10, (GRAPHS,), device="cuda")
    while True:
        loss = nn.functional.cross_entropy(compiled(x, edge_index, batch), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch()
