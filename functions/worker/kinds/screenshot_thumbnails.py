"""Make a thumbnail of each screenshot of a match.

Payload: {"screenshots": ["<object key>", ...]}. The cursor is the number of the next screenshot, and a chunk does a few
of them. A thumbnail is `thumbnails/<job>/<number>.png`; the last chunk writes `thumbnails/<job>/index.json`, in which
every screenshot stands with its thumbnail or with what was wrong with it. Nothing that an image holds can fail its
job: a broken, foreign or enormous one is that screenshot's outcome, and its neighbours get their thumbnails.

The same bytes give the same thumbnail, with one version of Pillow on one architecture: no time, no metadata of the
original (where and with what it was taken is nobody's business), first frame only.
"""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any, Final

from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.Image import DecompressionBombError, Resampling, Transpose

from shared.domain.job import Job
from shared.errors import BadPayload, ObjectMissing
from shared.kind import Chunk, ChunkContext, payload_of

calls_per_chunk: Final = 0

IMAGES_PER_CHUNK: Final = 4
"""What a crash may cost: some seconds of work."""

BOX: Final = (320, 320)
"""Width and height that a thumbnail fits into, in pixels."""

MAX_SCREENSHOTS: Final = 1_000
"""The index of a job is one object, and each line of it also an output: a match with more is several jobs."""

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""A larger file is not read: its outcome says so."""

MAX_PIXELS: Final = 40_000_000
"""An 8K screen has 33 million. Four bytes each while it is made small: what the class's `memory_mb` has to hold."""

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""Nothing else is opened: Pillow has dozens of decoders, some of which start other programs."""

DONE: Final = "done"
MISSING: Final = "missing"
TOO_LARGE: Final = "file_too_large"
TOO_MANY_PIXELS: Final = "too_many_pixels"
NOT_AN_IMAGE: Final = "not_an_image"
BROKEN: Final = "broken"

_TURNS: Final = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
"""EXIF's orientation -> what turns it upright. 1 is upright."""


class Unusable(Exception):
    """An image that gets no thumbnail, for a reason that its outcome names."""

    def __init__(self, outcome: str) -> None:
        self.outcome = outcome
        super().__init__(outcome)


def process_chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
    screenshots = _screenshots(job)
    begin = int(cursor or 0)
    end = min(begin + IMAGES_PER_CHUNK, len(screenshots))
    folder = f"thumbnails/{hashlib.sha256(job.job_id.encode()).hexdigest()}"
    images = [_outcome(screenshots[number], f"{folder}/{number:04d}.png", context) for number in range(begin, end)]
    done = sum(image["outcome"] == DONE for image in images)
    context.count("thumbnails", done)
    context.count("thumbnails_failed", len(images) - done)
    output = {"images": images}
    if end < len(screenshots):
        return Chunk(next_cursor=f"{end:04d}", output=output)
    index = [image for part in [*context.outputs(), output] for image in part["images"]]
    body = json.dumps({"images": index}, ensure_ascii=False, indent=1).encode()
    context.put_blob_once(f"{folder}/index.json", body, content_type="application/json")
    return Chunk(next_cursor=None, output=output | {"index": f"{folder}/index.json"})


def _outcome(screenshot: str, name: str, context: ChunkContext) -> dict[str, Any]:
    """One line of the index. What the object store does wrong is raised: that says nothing about the image."""
    try:
        data = context.read_blob(screenshot, start=0, length=MAX_FILE_BYTES + 1)
        body, (width, height) = thumbnail(data)
    except ObjectMissing:
        return {"screenshot": screenshot, "outcome": MISSING}
    except Unusable as fault:
        return {"screenshot": screenshot, "outcome": fault.outcome}
    context.put_blob_once(name, body, content_type="image/png")
    return {"screenshot": screenshot, "outcome": DONE, "thumbnail": name, "width": width, "height": height}


def thumbnail(data: bytes) -> tuple[bytes, tuple[int, int]]:
    """A PNG that fits into the box, upright, and its size. Raises `Unusable`, and nothing else, whatever `data` is."""
    if len(data) > MAX_FILE_BYTES:
        raise Unusable(TOO_LARGE)
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_pixels(image)
            small = _small(image)
        encoded = io.BytesIO()
        small.save(encoded, "PNG", compress_level=6)
    except (Unusable, MemoryError):
        raise
    except DecompressionBombError:
        raise Unusable(TOO_MANY_PIXELS) from None
    except UnidentifiedImageError:
        raise Unusable(NOT_AN_IMAGE) from None
    except Exception:  # noqa: BLE001 - a decoder may raise anything for a broken file: OSError, SyntaxError, ...
        raise Unusable(BROKEN) from None
    return encoded.getvalue(), small.size


def _check_pixels(image: Image.Image) -> None:
    """By what the header says: nothing is unpacked yet."""
    if image.width * image.height > MAX_PIXELS:
        raise Unusable(TOO_MANY_PIXELS)


def _small(image: Image.Image) -> Image.Image:
    """Small first, then turned: the box is a square, and to turn the whole would take twice the memory."""
    small = _averageable(image)
    small.thumbnail(BOX, Resampling.LANCZOS)
    clean = Image.new("RGBA" if small.mode == "RGBA" else "RGB", small.size)  # without the original's metadata
    clean.paste(small.convert(clean.mode))
    turn = _TURNS.get(_orientation(image))  # only now: it may load a PNG, and would hide that the PNG is broken
    return clean if turn is None else clean.transpose(turn)


def _averageable(image: Image.Image) -> Image.Image:
    """In a mode in which colours can be averaged; the image itself where it is, since a JPEG is then read in part."""
    if image.mode.startswith("I"):  # 16 bits of grey, of which a plain conversion would make white
        return image.point(lambda value: value * (1 / 256)).convert("L")
    if "transparency" in image.info or image.mode in ("LA", "PA"):
        return image.convert("RGBA")
    return image.convert("RGB") if image.mode in ("1", "P") else image


def _orientation(image: Image.Image) -> int:
    """Upright where the metadata is broken: a viewer would show such an image all the same."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001 - the parser of metadata raises as many kinds of errors as the decoders
        return 1


def _screenshots(job: Job) -> list[str]:
    keys = payload_of(job).get("screenshots")
    if not isinstance(keys, list) or len(keys) > MAX_SCREENSHOTS:
        raise BadPayload(f"screenshots: expected a list of at most {MAX_SCREENSHOTS} object keys")
    if not all(isinstance(key, str) and key for key in keys):
        raise BadPayload("screenshots: expected object keys only")
    return keys
