"""Number formats, torch.compile, DistributedDataParallel, and the fence around sampling."""

from __future__ import annotations

import copy
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from laworder.errors import UserError
from laworder.law import LAW, OBJECTIVES, Loss, objective, sampling


def a_batch(b: int = 3, size: tuple[int, ...] = (8, 8)) -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.zeros(b, 1, *(4 * s for s in size))
    mask[0, ..., 4:12, 4:16] = 1
    if b > 1:
        mask[1, ..., 16:20, 4:8] = 1
    return torch.randn(b, 4, *size), torch.randn(b, 4, *size), mask


def shaken(name: str, **settings: object) -> nn.Module:
    made = objective(name, channels=4, **settings)
    for phi in (child for child in made.modules() if hasattr(child, "last")):
        nn.init.normal_(phi.last.weight, std=0.1)  # type: ignore[union-attr]
    return made


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_half_precision_keeps_its_statistics_in_float32(name: str, kind: torch.dtype) -> None:
    pred, target, mask = a_batch()
    pred, target = pred.to(kind), target.to(kind)
    made = shaken(name)
    exact = made(pred.float(), target.float(), mask, teacher=target.float())
    for law in (made, copy.deepcopy(made).to(kind)):
        grad_to = pred.clone().requires_grad_()
        loss: Loss = law(grad_to, target, mask.to(kind), teacher=target)
        loss.total.backward()
        assert loss.total.dtype == loss.weight_map.dtype == torch.float32
        assert grad_to.grad is not None
        assert grad_to.grad.dtype == kind
        torch.testing.assert_close(loss.total, exact.total, rtol=2e-2, atol=1e-3)
        torch.testing.assert_close(loss.weight_map, exact.weight_map, rtol=2e-2, atol=2e-2)


def test_float16_sums_do_not_overflow() -> None:
    """Σ over 300² pixels of errors near 100 overflows float16 (65,504) long before the mean is taken."""
    pred = torch.full((1, 4, 300, 300), 10.0, dtype=torch.float16)
    mask = torch.ones(1, 1, 300, 300)
    mask[..., :100] = 0
    loss = LAW(channels=4, w_min=None, w_max=None)(pred, torch.zeros_like(pred), mask)
    torch.testing.assert_close(loss.parts["denoise"], torch.tensor(100.0))
    assert torch.isfinite(loss.total)


def test_autocast_changes_nothing() -> None:
    """Everything runs in float32, φ too, and its gradients arrive in float32."""
    pred, target, mask = a_batch()
    law = shaken("law")
    exact = law(pred, target, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = law(pred, target, mask)
    assert torch.equal(loss.weight_map, exact.weight_map)
    assert torch.equal(loss.total, exact.total)
    loss.total.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in law.parameters())


COMPILED = [(name, 2, {}) for name in sorted(OBJECTIVES)]
COMPILED += [
    ("law", 3, {}),
    ("law", 2, {"classes": 2}),
    ("law", 2, {"mean": "batch", "renormalise": True, "resize": "any"}),
]


@pytest.mark.untyped
@pytest.mark.parametrize(("name", "dims", "settings"), COMPILED)
def test_compiles_to_one_graph_with_the_same_result(name: str, dims: int, settings: dict[str, object]) -> None:
    torch.compiler.reset()
    made = shaken(name, spatial_dims=dims, **settings)
    pred, target, mask = a_batch(size=(8, 8) if dims == 2 else (4, 4, 8))
    mask = mask.repeat(1, int(settings.get("classes", 1)), *([1] * dims))  # type: ignore[call-overload]
    teacher, weight = torch.randn_like(pred), torch.rand(3)
    graphs = []

    def backend(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled = torch.compile(made, fullgraph=True, backend=backend)
    outputs = []
    for f in (made, compiled):
        x = pred.clone().requires_grad_()
        loss: Loss = f(x, target, mask, teacher=teacher, timestep_weight=weight)
        grads = torch.autograd.grad(loss.total, [x, *made.parameters()])
        outputs.append((loss.total, loss.weight_map, *loss.parts.values(), *loss.stats.values(), *grads))
    for eager, one_graph in zip(*outputs, strict=True):
        torch.testing.assert_close(one_graph, eager)
    # Masks that are empty, full or mixed take the same graph: nothing branches on data.
    for value in (0.0, 1.0):
        x = pred.clone().requires_grad_()
        compiled(x, target, torch.full_like(mask, value), teacher=teacher, timestep_weight=weight)
    assert len(graphs) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own, within inductor
def test_inductor_agrees_with_eager() -> None:
    torch.compiler.reset()
    made = shaken("law")
    pred, target, mask = a_batch()
    eager = made(pred, target, mask)
    fused = torch.compile(made, fullgraph=True)(pred, target, mask)
    torch.testing.assert_close(fused.total, eager.total)
    torch.testing.assert_close(fused.weight_map, eager.weight_map)


class Trainee(nn.Module):
    """A denoiser and its objective in one module, as DDP wants them."""

    def __init__(self, law: nn.Module) -> None:
        super().__init__()
        self.denoiser, self.law = nn.Conv2d(4, 4, 3, padding=1), law

    def forward(self, noisy: Tensor, target: Tensor, mask: Tensor) -> Loss:
        return self.law(self.denoiser(noisy), target, mask)


CASES = {
    "mixed": {},
    "one_rank_empty": {},
    "all_empty": {},
    "gamma_0_no_dice": {"gamma": 0.0, "dice_weight": 0.0},
    "no_norm": {"normalise": False},
}


def _case_data(case: str) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    noisy, target, mask = a_batch(b=4)
    mask = mask[[0, 1, 1, 0]]
    if case == "one_rank_empty":
        mask[2:] = 0
    if case == "all_empty":
        mask[:] = 0
    return noisy, target, mask


def _case_model(case: str) -> Trainee:
    torch.manual_seed(0)
    return Trainee(shaken("law", **CASES[case]))


def _worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    for case in CASES:
        model = DistributedDataParallel(_case_model(case))
        mine = slice(2 * rank, 2 * rank + 2)
        noisy, target, mask = (x[mine] for x in _case_data(case))
        for _ in range(2):  # a parameter without a gradient would make the second forward raise
            model.zero_grad()
            model(noisy, target, mask).total.backward()
        grads = {name: p.grad for name, p in model.module.named_parameters()}
        torch.save(grads, Path(folder) / f"{case}.{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """Each rank has half the batch; gradients, φ's too, equal those of the whole batch in one process."""
    torch.multiprocessing.spawn(_worker, args=(str(tmp_path),), nprocs=2)
    for case in CASES:
        model = _case_model(case)
        model(*_case_data(case)).total.backward()
        ranks = [torch.load(tmp_path / f"{case}.{rank}.pt", weights_only=True) for rank in (0, 1)]
        for name, p in model.named_parameters():
            assert p.grad is not None, (case, name)
            for grads in ranks:
                torch.testing.assert_close(grads[name], p.grad, msg=lambda text, at=(case, name): f"{at}: {text}")


def test_nothing_runs_in_sampling() -> None:
    pred, target, mask = a_batch()
    for name in OBJECTIVES:
        made = objective(name, channels=4)
        with sampling(), pytest.raises(UserError, match="while sampling"):
            made(pred, target, mask, teacher=pred)
        assert torch.isfinite(made(pred, target, mask, teacher=pred).total)
    law = LAW(channels=4)
    with sampling():
        with sampling():
            pass
        with pytest.raises(UserError, match="φ was called while sampling"):
            law.phi(pred, pred[:, :1])
        with pytest.raises(UserError, match="while sampling"):
            law.delta(pred, pred[:, :1])


def test_the_fence_falls_with_an_exception_and_stands_per_thread() -> None:
    pred, target, mask = a_batch()
    law = LAW(channels=4)
    with pytest.raises(RuntimeError, match="boom"), sampling():
        raise RuntimeError("boom")
    law(pred, target, mask)
    found: list[Loss] = []
    with sampling():
        other = threading.Thread(target=lambda: found.append(law(pred, target, mask)))
        other.start()
        other.join()
    assert len(found) == 1


@pytest.mark.untyped
def test_the_fence_also_stops_a_compiled_objective() -> None:
    torch.compiler.reset()
    pred, target, mask = a_batch()
    law = torch.compile(LAW(channels=4), backend="eager", fullgraph=True)
    law(pred, target, mask)
    with sampling(), pytest.raises(torch._dynamo.exc.Unsupported, match="was called while sampling"):
        law(pred, target, mask)
    law(pred, target, mask)
