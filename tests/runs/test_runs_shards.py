"""Two processes hold one shard each: what they measure, clip, gather and cut is what one process would have."""

from __future__ import annotations

import copy
import multiprocessing
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import clip_grad_norm_

from laworder.runs.distributed import average_gradients
from laworder.runs.shards import clip_gradients, gradient_norm, is_shard, shard_like, whole

X = torch.linspace(-2, 2, 24).reshape(8, 3)
LIMIT = 0.05


def update(net: nn.Module, more: nn.Parameter, x: torch.Tensor) -> torch.optim.Optimizer:
    """Gradients of a loss in which a sharded network and a parameter that is not sharded take part."""
    groups = [{"params": list(net.parameters())}, {"params": [more]}]
    rule = torch.optim.AdamW(groups, lr=0.1)
    (net(x) * more.sum() + 3 * more.square().sum()).square().mean().backward()
    return rule


def alone(net: nn.Module) -> tuple[torch.Tensor, dict[str, Any], dict[str, Any]]:
    more = nn.Parameter(torch.tensor([0.3, 0.4]))
    rule = update(net, more, X)
    norm = clip_grad_norm_([*net.parameters(), more], LIMIT)
    rule.step()
    return norm, net.state_dict(), rule.state_dict()


def work(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))  # 5 rows are 3 + 2, 1 row is 1 + 0
        expected, weights, remembered = alone(copy.deepcopy(net))
        fully_shard(net, reshard_after_forward=True)
        more = nn.Parameter(torch.tensor([0.3, 0.4]))
        rule = update(net, more, X[rank * 4 : rank * 4 + 4])
        average_gradients([more], 2)
        everything = [*net.parameters(), more]
        assert [is_shard(p) for p in everything] == [True] * 4 + [False]
        norm = gradient_norm(everything)
        assert not is_shard(norm)
        torch.testing.assert_close(norm, expected)
        clip_gradients(everything, LIMIT, norm)
        rule.step()
        state = {"net": net.state_dict(), "rule": rule.state_dict(), "pair": (1, [2.5, None])}
        gathered = whole(state, keep=rank == 0)
        assert gathered["pair"] == (1, [2.5, None])
        if rank == 0:
            torch.testing.assert_close(gathered["net"], dict(weights))
            torch.testing.assert_close(gathered["rule"]["state"], remembered["state"])
        else:
            assert set(gathered["net"].values()) == {None}
            assert gathered["rule"]["state"][0]["exp_avg"] is None
        own: Any = more
        for own in net.parameters():
            given = whole(own, keep=True)
            again = shard_like(given, own)
            assert torch.equal(again.to_local(), own.to_local())
            assert torch.equal(whole(again, keep=True), given)
        assert shard_like(3, own) == 3
        assert shard_like(torch.ones(()), own).shape == (), "the optimiser's count of steps is nobody's shard"
        Path(folder, f"{rank}").touch()
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_shards_are_measured_clipped_gathered_and_cut_as_whole_tensors_are(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=work, args=(rank, port, str(tmp_path))) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
        process.kill()
    assert [process.exitcode for process in ranks] == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2


def test_whole_tensors_are_left_as_they_are() -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    weight.grad = torch.tensor([3.0, 4.0])
    assert float(gradient_norm([weight, nn.Parameter(torch.ones(1))])) == 5.0
    clip_gradients([weight], 1.0, torch.tensor(5.0))
    assert weight.grad.tolist() == pytest.approx([0.6, 0.8])
    assert shard_like(weight.grad, weight) is weight.grad
    assert whole({"a": [weight]}, keep=False) == {"a": [weight]}
