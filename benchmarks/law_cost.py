"""What LAW adds to a training step: time and memory, against the plain mean squared error.

    python benchmarks/law_cost.py --out benchmarks/results/law_cost.json     # a GPU, about two and a half minutes
    python benchmarks/law_cost.py --tiny                                     # toy sizes, any machine, under a minute

Two networks from diffusers' own classes with random weights: `sd15` (Stable Diffusion 1.5's UNet with a ControlNet and
the UNet's decoder trained, 384² images, batch 4) and `compact` (a UNet with ControlNet of about 30 million parameters
together, all trained, 32-channel 32×32 latents, batch 64). A step is a whole one: noising, forward, loss, backward,
AdamW, under bfloat16 autocast.

Four variants take turns in one process, a few steps at a time, in an order that rotates with every round:
`mse` and `mse_again` (the same thing twice: what differs between them is noise), `law` (as it comes, diagnostics
included) and `law_quiet` (`diagnostics=False`). The overhead is the median over rounds of (variant − mse)/mse, each
round compared with itself; quartiles are printed beside it. The device is synchronised once per block, not per step.
Peak memory is read before LAW exists and again with it, so its parameters and optimiser state are counted.

At these batch sizes an eager step waits for Python to launch its several thousand kernels, so its time wanders by a
tenth. On CUDA each variant is therefore also captured as a CUDA graph and replayed: what the device itself needs, and
what a tuned trainer pays. The targets are judged on the graphs (on a CPU: on the eager steps); both are reported.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import diffusers
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from common import manifest
from laworder.law import LAW


@dataclass(frozen=True)
class Scenario:
    """One network and batch, with what the cost is meant to stay under."""

    name: str
    widths: tuple[int, ...]
    layers: int
    attention: int
    """How many of the resolutions, from the finest, have cross-attention."""
    text: tuple[int, int]
    """Tokens and width of the prompt's embedding."""
    channels: int
    side: int
    """Of the latents; the mask has eight times as much."""
    batch: int
    whole: bool
    """Train the whole UNet (or its decoder only)."""
    most_percent: float
    most_mb: float | None


SCENARIOS = (
    Scenario("sd15", (320, 640, 1280, 1280), 2, 3, (77, 768), 4, 48, 4, False, 1.0, 20.0),
    Scenario("compact", (96, 160, 224), 2, 2, (77, 256), 32, 32, 64, True, 3.0, None),
)
TINY = (
    Scenario("sd15", (16, 32), 1, 1, (5, 8), 4, 8, 2, False, 1.0, 20.0),
    Scenario("compact", (16, 32), 1, 1, (5, 8), 8, 8, 4, True, 3.0, None),
)


class Step:
    """One training step of a UNet with ControlNet; the loss is the caller's."""

    def __init__(self, scenario: Scenario, device: torch.device) -> None:
        torch.manual_seed(0)
        self.scenario, self.device = scenario, device
        blocks = range(len(scenario.widths))
        with_text = [i < scenario.attention for i in blocks]
        self.unet = diffusers.UNet2DConditionModel(
            in_channels=scenario.channels,
            out_channels=scenario.channels,
            block_out_channels=scenario.widths,
            layers_per_block=scenario.layers,
            cross_attention_dim=scenario.text[1],
            attention_head_dim=8,
            norm_num_groups=min(32, scenario.widths[0]),
            down_block_types=tuple("CrossAttnDownBlock2D" if t else "DownBlock2D" for t in with_text),
            up_block_types=tuple("CrossAttnUpBlock2D" if t else "UpBlock2D" for t in reversed(with_text)),
        ).to(device)
        self.control = diffusers.ControlNetModel.from_unet(self.unet).to(device)
        self.unet.requires_grad_(scenario.whole)
        self.unet.up_blocks.requires_grad_(True)
        self.trained = [p for m in (self.unet, self.control) for p in m.parameters() if p.requires_grad]
        self.adam = torch.optim.AdamW(self.trained, lr=1e-5, fused=True, capturable=device.type == "cuda")
        alphas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, device=device) ** 2
        self.alphas_cumprod = torch.cumprod(1 - alphas, dim=0)
        self._draw()

    def _draw(self) -> None:
        s, shape = self.scenario, (self.scenario.batch, self.scenario.channels, self.scenario.side, self.scenario.side)
        self.latents, self.noise = torch.randn(2, *shape, device=self.device).unbind(0)
        self.t = torch.randint(0, 1000, (s.batch,), device=self.device)
        self.text = torch.randn(s.batch, *s.text, device=self.device)
        self.mask = torch.zeros(s.batch, 1, 8 * s.side, 8 * s.side, device=self.device)
        self.mask[:, :, 2 * s.side : 4 * s.side, 2 * s.side : 4 * s.side] = 1  # r = 6 %

    def __call__(self, loss_of: Callable[[Tensor, Tensor, Tensor], Tensor], phi: torch.optim.Optimizer | None) -> None:
        a = self.alphas_cumprod[self.t].view(-1, 1, 1, 1)
        noisy = a.sqrt() * self.latents + (1 - a).sqrt() * self.noise
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            down, mid = self.control(
                noisy, self.t, self.text, controlnet_cond=self.mask.expand(-1, 3, -1, -1), return_dict=False
            )
            pred = self.unet(
                noisy,
                self.t,
                self.text,
                down_block_additional_residuals=down,
                mid_block_additional_residual=mid,
                return_dict=False,
            )[0]
            loss = loss_of(pred, self.noise, self.mask)
        loss.backward()
        for optimiser in (self.adam, phi):
            if optimiser is not None:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)


Variant = tuple[Callable[[Tensor, Tensor, Tensor], Tensor], torch.optim.Optimizer | None]


def mse(pred: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """The plain objective, as diffusers' training scripts write it."""
    del mask
    return F.mse_loss(pred.float(), target.float())


def with_law(channels: int, device: torch.device, *, diagnostics: bool) -> Variant:
    """LAW with φ and its own optimiser."""
    law = LAW(channels=channels, diagnostics=diagnostics).to(device)
    phi = torch.optim.AdamW(law.parameter_groups(), lr=1e-4, fused=True, capturable=device.type == "cuda")
    return (lambda pred, target, mask: law(pred, target, mask).total), phi


def block(once: Callable[[], None], steps: int, device: torch.device) -> float:
    """Seconds per step over a block of steps, synchronised at its ends."""
    synchronise(device)
    start = time.perf_counter()
    for _ in range(steps):
        once()
    synchronise(device)
    return (time.perf_counter() - start) / steps


def eager(step: Step, variant: Variant) -> Callable[[], None]:
    return lambda: step(*variant)


def graph(step: Step, variant: Variant) -> Callable[[], None]:
    """The whole step as one CUDA graph: its replay launches everything at once."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(*variant)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step(*variant)
    return captured.replay


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_mb(step: Step, variant: Variant) -> float | None:
    """Peak of allocated memory over three steps, after warm-up. CUDA only."""
    if step.device.type != "cuda":
        return None
    block(eager(step, variant), 5, step.device)
    torch.cuda.reset_peak_memory_stats(step.device)
    block(eager(step, variant), 3, step.device)
    return torch.cuda.max_memory_allocated(step.device) / 2**20


def measure(scenario: Scenario, device: torch.device, args: argparse.Namespace) -> dict[str, Any]:
    """Memory, then eager steps, then graphs, all in one process."""
    step = Step(scenario, device)
    variants: dict[str, Variant] = {"mse": (mse, None), "mse_again": (mse, None)}
    before = peak_mb(step, variants["mse"])
    variants["law"] = with_law(scenario.channels, device, diagnostics=True)
    after = peak_mb(step, variants["law"])
    variants["law_quiet"] = with_law(scenario.channels, device, diagnostics=False)
    modes = {"eager": eager, "graph": graph} if device.type == "cuda" else {"eager": eager}
    return {
        "scenario": asdict(scenario),
        "parameters": {"all": _count(step.unet, step.control), "trained": sum(p.numel() for p in step.trained)},
        "modes": {
            mode: race({name: make(step, v) for name, v in variants.items()}, device, args)
            for mode, make in modes.items()
        },
        "peak_mb": {"mse": before, "law": after},
        "added_mb": None if before is None or after is None else after - before,
    }


def race(once: dict[str, Callable[[], None]], device: torch.device, args: argparse.Namespace) -> dict[str, Any]:
    """Interleaved blocks until the time is up, and at least `args.rounds` rounds."""
    names = tuple(once)
    for name in names:
        block(once[name], args.steps, device)
    times: dict[str, list[float]] = {name: [] for name in names}
    end, turn = time.perf_counter() + args.seconds, 0
    while turn < args.rounds or time.perf_counter() < end:
        for i in range(len(names)):
            name = names[(i + turn) % len(names)]
            times[name].append(block(once[name], args.steps, device))
        turn += 1
    return {
        "rounds": turn,
        "steps_per_block": args.steps,
        "ms_per_step": {name: [1e3 * x for x in times[name]] for name in names},
        "overhead_percent": {name: overhead(times["mse"], times[name]) for name in names[1:]},
    }


def _count(*modules: nn.Module) -> int:
    return sum(p.numel() for m in modules for p in m.parameters())


def overhead(base: list[float], other: list[float]) -> dict[str, float]:
    """Median and quartiles over rounds of (other − base)/base, in percent."""
    percent = [100 * (b - a) / a for a, b in zip(base, other, strict=True)]
    low, middle, high = statistics.quantiles(percent, n=4, method="inclusive")
    return {"median": middle, "lower_quartile": low, "upper_quartile": high}


def show(result: dict[str, Any], *, judge: bool) -> None:
    """The result as a few lines; `judge` says whether the targets were met, which toy sizes cannot tell."""
    s, p = result["scenario"], result["parameters"]
    print(f"{s['name']}: {p['all'] / 1e6:.1f} M parameters, {p['trained'] / 1e6:.1f} M trained, batch {s['batch']}")
    for mode, found in result["modes"].items():
        print(f"  {mode}: {found['rounds']} rounds of {found['steps_per_block']} steps per variant")
        for name, ms in found["ms_per_step"].items():
            line = f"    {name:10s} median {statistics.median(ms):8.3f} ms, {min(ms):.3f} to {max(ms):.3f}"
            if name in found["overhead_percent"]:
                o = found["overhead_percent"][name]
                line += f"; {o['median']:+.2f} % (quartiles {o['lower_quartile']:+.2f}, {o['upper_quartile']:+.2f})"
            print(line)
    if not judge:
        return
    mode, found = list(result["modes"].items())[-1]
    met = "met" if found["overhead_percent"]["law"]["median"] <= s["most_percent"] else "MISSED"
    print(f"  target ({mode}): law at most {s['most_percent']} %: {met}")
    if result["added_mb"] is not None:
        print(f"  peak memory: {result['peak_mb']['mse']:.1f} → {result['peak_mb']['law']:.1f} MiB")
        if s["most_mb"] is not None:
            met = "met" if result["added_mb"] <= s["most_mb"] else "MISSED"
            print(f"  target: at most {s['most_mb']} MB more: {result['added_mb']:.2f}, {met}")


def markdown(written: dict[str, Any]) -> str:
    """The result as a page: one row a network, mode and variant."""
    told = written["manifest"]
    command = told["command"] if isinstance(told["command"], str) else " ".join(told["command"])
    rows = []
    for result in written["results"]:
        scenario = result["scenario"]
        for mode, found in result["modes"].items():
            for name, ms in found["ms_per_step"].items():
                o = found["overhead_percent"].get(name)
                change = (
                    f"{o['median']:+.2f} % [{o['lower_quartile']:+.2f}, {o['upper_quartile']:+.2f}]"
                    if o
                    else "baseline"
                )
                rows.append(f"| {scenario['name']} | {mode} | {name} | {statistics.median(ms):.2f} | {change} |")
        if result["added_mb"] is not None:
            rows.append(f"| {scenario['name']} | peak memory | law | {result['added_mb']:+.2f} MiB | |")
    return "\n".join(
        [
            f"# What LAW adds to a training step, {told['device']}",
            "",
            f"`{command}`, {told['date']}, torch {told['versions']['torch']}, diffusers "
            f"{told['versions']['diffusers']}, random weights. Median over interleaved rounds, quartiles in brackets.",
            "",
            "| network | mode | loss | ms/step | against mse |",
            "|---|---|---|---:|---:|",
            *rows,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the numbers and their manifest to this JSON file")
    parser.add_argument("--tiny", action="store_true", help="toy sizes and two rounds: does it run?")
    parser.add_argument("--seconds", type=float, default=25.0, help="measuring time per network and mode (default 25)")
    parser.add_argument("--steps", type=int, default=4, help="steps per block (default 4)")
    parser.add_argument("--rounds", type=int, default=8, help="at least so many rounds (default 8)")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.tiny:
        args.seconds, args.steps, args.rounds = 0.0, 1, 2
        torch.set_num_threads(1)
    results = []
    for scenario in TINY if args.tiny else SCENARIOS:
        results.append(measure(scenario, device, args))
        show(results[-1], judge=not args.tiny)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        written = {"manifest": manifest(args, device=device, seeds=[0], rooms=["law"]), "results": results}
        args.out.write_text(json.dumps(written, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(markdown(written))
        print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
