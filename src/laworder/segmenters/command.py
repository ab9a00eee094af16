"""`laworder models`: every segmenter with its size, its cost and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from laworder.config import option
from laworder.console import say
from laworder.errors import UserError
from laworder.segmenters import list_models, model_table


@dataclass(frozen=True, kw_only=True)
class Config:
    """List the registered segmenters. conv_flops counts convolutions only, as the paper does; flops counts everything,
    attention included. Both at 256×256 and batch 1."""

    pattern: str = option("*", "names to list, with a shell's wildcards", positional=True)
    time: bool = option(True, "measure the time of one image on this machine's CPU, too")
    sources: bool = option(False, "tell where each idea comes from, its licence, and what differs from its paper")


def plan(config: Config) -> list[str]:
    return [f"list the models that match {config.pattern!r}"]


def run(config: Config) -> None:
    names = list_models(config.pattern)
    if not names:
        raise UserError(f"no model matches {config.pattern!r}; known: {', '.join(list_models())}")
    rows = model_table(config.pattern, time=config.time)
    say(_table(rows, timed=config.time))
    if config.sources:
        for row in rows:
            say(f"\n{row['name']}: {row['summary']}")
            say(f"  from     {row['source']}\n  licence  {row['licence']}\n  differs  {row['differs']}")


def _table(rows: list[dict[str, Any]], *, timed: bool) -> str:
    head = ["name", "params", "conv_flops", "flops", *(["CPU ms"] if timed else [])]
    body = [
        [
            row["name"],
            f"{row['params']:,}",
            f"{row['conv_flops'] / 1e9:.4g} G",
            f"{row['flops'] / 1e9:.4g} G",
            *([f"{row['cpu_ms']:.1f}"] if timed else []),
        ]
        for row in rows
    ]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = [[head[0].ljust(widths[0]), *(h.rjust(w) for h, w in zip(head[1:], widths[1:], strict=True))]]
    lines += [
        [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))] for line in body
    ]
    return "\n".join("  ".join(line) for line in lines)
