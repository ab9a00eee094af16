"""From what was found to what to say: errors, warnings and notes, one line each, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from laworder.data.audit.alignment import LEAST
from laworder.data.audit.leaks import across, crossing_groups
from laworder.data.audit.look import Look

if TYPE_CHECKING:
    from laworder.data.audit.study import Audit, SplitAudit

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
NAMED = 5
_WEAK_PAIRING = 0.65
_PARTIAL = 0.02
"""Share of half-bright pixels from which a mask's edge is called soft: the threshold then moves the border."""
_MANY_LOST = 0.05


@dataclass(frozen=True)
class Finding:
    """subject: what it is about ("leak", "mask", …); text: what is wrong and, where there is one, what to do"""

    severity: Severity
    subject: str
    text: str


def find_all(audit: Audit) -> list[Finding]:
    """Every finding, errors first."""
    found = [finding for split in audit.splits for rule in _SPLIT_RULES for finding in rule(split)]
    found += [finding for rule in _WHOLE_RULES for finding in rule(audit)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def named(looks: Sequence[Look]) -> str:
    """A few names, and how many more."""
    more = f" and {len(looks) - NAMED} more" if len(looks) > NAMED else ""
    return ", ".join(one.name for one in looks[:NAMED]) + more


def many(count: int, what: str) -> str:
    """1 mask, 2 masks."""
    return f"{count} {what}{'s' * (count != 1)}"


def _files(split: SplitAudit) -> Iterator[Finding]:
    if not split.looks:
        yield Finding("error", "files", f"{split.name}: nothing in it can be read")
    if split.problems:
        first = "; ".join(split.problems[:3])
        yield Finding(
            "error", "files", f"{split.name}: {many(len(split.problems), 'problem')} with files, first: {first}"
        )


def _masks(split: SplitAudit) -> Iterator[Finding]:
    total = len(split.looks)

    def those(test: Callable[[Look], bool]) -> list[Look]:
        return [one for one in split.looks if test(one)]

    empty = those(lambda one: one.mask.empty)
    if total and len(empty) == total:
        yield Finding("error", "mask", f"{split.name}: every mask is empty")
    elif empty:
        yield Finding("note", "mask", f"{split.name}: {len(empty)} of {total} masks are empty: {named(empty)}")
    if full := those(lambda one: one.mask.full):
        yield Finding(
            "error", "mask", f"{split.name}: {many(len(full), 'mask')} all lesion, without background: {named(full)}"
        )
    if specks := those(lambda one: one.mask.specks > 0):
        count = sum(one.mask.specks for one in specks)
        yield Finding(
            "warning",
            "mask",
            f"{split.name}: {many(count, 'speck')} of under 10 pixels in {many(len(specks), 'mask')}: {named(specks)}",
        )
    if soft := those(lambda one: one.mask.file is not None and one.mask.file.partial > _PARTIAL):
        yield Finding("warning", "mask", f"{split.name}: {many(len(soft), 'mask')} with wide soft edges: {named(soft)}")
    if levels := those(lambda one: one.mask.file is not None and one.mask.file.levels > 2 and one not in soft):
        text = f"{many(len(levels), 'mask file')} with more than two levels, which are cut at half: {named(levels)}"
        yield Finding("note", "mask", f"{split.name}: {text}")
    if border := those(lambda one: one.mask.border):
        share = 100 * len(border) / total
        yield Finding(
            "note", "mask", f"{split.name}: in {many(len(border), 'mask')} ({share:.0f} %) the image cuts a lesion"
        )


def _pairing(split: SplitAudit) -> Iterator[Finding]:
    test = split.alignment
    if test is None:
        return
    if test.tested < LEAST:
        text = f"only {test.tested} images with a lesion: too few to tell whether masks and images belong together"
        yield Finding("note", "pairing", f"{split.name}: {text}")
        return
    if flipped := test.flipped:
        share = 100 * test.turned[flipped][0]
        text = f"in {share:.0f} % of the images the mask fits better {flipped}; turn the masks, or the images"
        yield Finding("error", "pairing", f"{split.name}: {text}")
    elif test.shuffled:
        text = f"masks fit their images no better than other images' do ({100 * test.own:.0f} %, chance is 50 %)"
        yield Finding("error", "pairing", f"{split.name}: {text}; are they paired rightly?")
    elif test.own < _WEAK_PAIRING:
        text = f"masks fit their images hardly better than other images' do ({100 * test.own:.0f} %, chance is 50 %)"
        yield Finding("warning", "pairing", f"{split.name}: {text}; are some paired wrongly?")


def _survival(split: SplitAudit) -> Iterator[Finding]:
    for summary in split.weights:
        if summary.resize == "nearest" and summary.lost > 0:
            severity: Severity = "warning" if summary.lost > _MANY_LOST else "note"
            text = f"{many(summary.lost_masks, 'mask')} with a lesion, but with none left on latents of {summary.side}²"
            yield Finding(severity, "survival", f'{split.name}: {text} (LAW\'s resize="any" keeps it)')


def _leaks(audit: Audit) -> Iterator[Finding]:
    for kind, severity in (("identical", "error"), ("copy", "error"), ("near", "warning"), ("mirrored", "error")):
        for (a, b), links in across(audit, kind).items():
            ends = ({i for i, _ in links}, {j for _, j in links})
            counts = f"{many(len(ends[0]), 'image')} of {a} and {len(ends[1])} of {b}"
            first = ", ".join(f"{audit.looks[i].name} = {audit.looks[j].name}" for i, j in sorted(links)[:3])
            what = {
                "identical": "are identical",
                "copy": "are all but the same",
                "near": "are nearly the same (neighbouring frames or slices)",
                "mirrored": "are mirrored or turned copies",
            }[kind]
            yield Finding("error" if severity == "error" else "warning", "leak", f"{counts} {what}: {first}")
    for (a, b), shared in crossing_groups(audit).items():
        text = f"{many(len(shared), 'group')} (patients) in both {a} and {b}: {', '.join(shared[:NAMED])}"
        yield Finding("error", "leak", text)


def _repeats(audit: Audit) -> Iterator[Finding]:
    for split in audit.splits:
        looks = [[audit.looks[i] for i in m if audit.looks[i].split == split.name] for m in audit.duplicates.identical]
        inside = [group for group in looks if len(group) > 1]
        if inside:
            names = "; ".join(" = ".join(one.name for one in group[:4]) for group in inside[:3])
            text = f"{many(len(inside), 'group')} of identical images, first: {names}"
            yield Finding("warning", "duplicates", f"{split.name}: {text}")
    if audit.conflicts:
        first = ", ".join(
            f"{audit.looks[a].name} and {audit.looks[b].name} (IoU {iou:.2f})" for a, b, iou in audit.conflicts[:3]
        )
        text = f"{many(len(audit.conflicts), 'pair')} of the same image with different masks: {first}"
        yield Finding("warning", "duplicates", text)


def _values(audit: Audit) -> Iterator[Finding]:
    """Masks that mean lesion by different numbers: alike here, but not to a program that takes them as they are."""
    meaning: dict[float, list[Look]] = {}
    for one in audit.looks:
        file = one.mask.file
        if file is not None and file.levels == 2 and file.first[0] == 0 and one.mask.classes == (0, 1):
            meaning.setdefault(file.first[1], []).append(one)
    if len(meaning) > 1:
        (most, usual), *others = sorted(meaning.items(), key=lambda item: (-len(item[1]), item[0]))
        rest = "; ".join(f"{value:g} in {named(looks)}" for value, looks in others)
        text = f"lesion is {most:g} in {many(len(usual), 'mask file')}, but {rest}: alike here, not to every program"
        yield Finding("warning", "mask", text)


_SPLIT_RULES = (_files, _masks, _pairing, _survival)
_WHOLE_RULES = (_values, _leaks, _repeats)
