"""The folders of an evaluation, opened and checked together before anything is computed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from PIL import Image

from laworder.data.opening import Phantom, open_source
from laworder.data.pairs import Source
from laworder.data.parallel import over_cores
from laworder.data.prepared import PreparedSource
from laworder.data.sources.folder import FolderSource
from laworder.data.sources.images import shown
from laworder.errors import UserError

LEAST = 2
Sizes = Counter[tuple[int, int]]


def open_pairs(role: str, data: str, masks: Path | None = None) -> Source:
    """Pairs of a role (generated, real, …); UserError says which role is at fault."""
    if data == "phantom":
        raise UserError(f"{role}: give a folder; drawn data is written to one by `laworder data prepare phantom`")
    try:
        source = open_source(data, masks=masks, size=0, phantom=Phantom())
    except UserError as error:
        lacking = "no mask of that name" in str(error)
        hint = "every generated image needs the mask that made it, under the same name. " if lacking else ""
        raise UserError(f"{role} images: {hint if role == 'generated' else ''}{error}") from error
    if len(source) < LEAST:
        raise UserError(f"{role} images: {data} holds {len(source)} pair; at least {LEAST} are needed to compare sets")
    return source


def check_places(places: dict[str, str]) -> None:
    """UserError where one role's folder is another's, or lies inside it: images would be compared with themselves.

    places: role → what was typed
    """
    found = {role: _folder(typed) for role, typed in places.items()}
    roles = list(found)
    for i, first in enumerate(roles):
        for second in roles[i + 1 :]:
            (a, pool_a), (b, pool_b) = found[first], found[second]
            if a == b and pool_a != pool_b:
                _check_pools(a, (first, pool_a), (second, pool_b))
                continue
            if a == b:
                raise UserError(f"{first} and {second} are the same folder, {a}: a set is at distance 0 from itself")
            for inner, outer, names in ((a, b, (first, second)), (b, a, (second, first))):
                if outer in inner.parents:
                    raise UserError(
                        f"{names[0]} ({inner}) lies inside {names[1]} ({outer}), whose images then hold it too; "
                        "move one of the folders"
                    )


def _check_pools(folder: Path, first: tuple[str, str], second: tuple[str, str]) -> None:
    """UserError where two pools of one prepared folder share pairs; "" is all of them."""
    names = [set(PreparedSource(folder, pool or None).names) for _, pool in (first, second)]
    shared = len(names[0] & names[1])
    if shared:
        raise UserError(
            f"{first[0]} and {second[0]} share {shared} pairs of {folder}: images would be compared with themselves; "
            "name pools that share none (FOLDER:POOL)"
        )


def _folder(typed: str) -> tuple[Path, str]:
    """Folder and pool of what was typed."""
    whole = Path(typed).expanduser()
    place, colon, pool = typed.rpartition(":")
    if colon and not whole.exists():
        return Path(place).expanduser().resolve(), pool
    return whole.resolve(), ""


def sizes_of(source: Source) -> Sizes:
    """How often each width × height occurs; pictures are not decoded where their files say it."""
    if isinstance(source, PreparedSource):
        return Counter((record["width"], record["height"]) for record in source.records)
    found: list[tuple[int, int]] = [(0, 0)] * len(source)

    def look(index: int) -> None:
        if isinstance(source, FolderSource):
            with Image.open(source.pairs[index].image) as picture:
                found[index] = picture.size
        else:
            height, width = source.read(index).image.shape[:2]
            found[index] = (width, height)

    over_cores(look, len(source))
    return Counter(found)


def check_sizes(generated: Source, real: Source, *, force: bool) -> tuple[dict[str, str], list[str]]:
    """Sizes in words by role, and what they mean for the numbers; UserError where generated images differ in size."""
    made, known = sizes_of(generated), sizes_of(real)
    if len(made) > 1 and not force:
        odd = made.most_common()[-1][0]
        name = shown(generated.names[_first_of(generated, odd)])
        raise UserError(
            f"generated images have {len(made)} different sizes: {_words(made)}; the first of "
            f"{odd[0]}×{odd[1]} is {name}. A generator draws at one size: is another run mixed in? --force goes on"
        )
    words = {"generated": _words(made), "real": _words(known)}
    if made.keys() == known.keys():
        return words, []
    return words, [
        f"Generated images have {words['generated']} pixels, real ones {words['real']}: part of every distance is then "
        "that of how sharp pictures of these sizes are. Give real images of the generated ones' size to exclude it."
    ]


def _first_of(source: Source, size: tuple[int, int]) -> int:
    for i in range(len(source)):
        if source.read(i).image.shape[:2] == (size[1], size[0]):
            return i
    return 0


def _words(sizes: Sizes) -> str:
    common = sizes.most_common(2)
    listed = ", ".join(f"{width}×{height} ({count})" for (width, height), count in common)
    return listed + (f" and {len(sizes) - 2} other sizes" if len(sizes) > 2 else "")
