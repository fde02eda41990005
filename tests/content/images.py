"""Screenshots of a game that does not exist, the same for the same number, and images that nobody should open."""

from __future__ import annotations

import io
import random
import struct
import zlib
from typing import Any

from PIL import ExifTags, Image, ImageDraw

ORIENTATIONS = range(1, 9)


def scene(number: int, size: tuple[int, int] = (1280, 720)) -> Image.Image:
    """Sky, hills, players and a score board."""
    chance = random.Random(number)
    width, height = size
    image = Image.linear_gradient("L").resize(size).convert("RGB")
    sky = Image.new("RGB", size, (chance.randint(20, 120), chance.randint(80, 160), 220))
    image = Image.blend(image, sky, 0.7)
    draw = ImageDraw.Draw(image)
    for layer in range(3):
        top = height * (0.45 + 0.15 * layer)
        hills: list[tuple[float, float]] = [(0, height)]
        hills += [(x, top + chance.randint(-height // 12, height // 12)) for x in range(0, width + 1, width // 8)]
        draw.polygon([*hills, (width, height)], fill=(30 + 20 * layer, 110 - 25 * layer, 50))
    for side in range(10):
        x, y, radius = chance.randint(0, width), chance.randint(height // 2, height), max(3, height // 40)
        fill = (220, 60, 50) if side % 2 else (60, 90, 230)
        draw.ellipse((x - radius, y - 2 * radius, x + radius, y + 2 * radius), fill=fill, outline="white")
    draw.rectangle((width * 0.4, 0, width * 0.6, height // 14), fill=(15, 15, 25))
    score = f"{chance.randint(0, 9)} : {chance.randint(0, 9)}"
    draw.text((width * 0.5, height // 28), score, anchor="mm", fill="white", font_size=max(10, height // 20))
    return image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    into = io.BytesIO()
    image.save(into, kind, **options)
    return into.getvalue()


def screenshot(number: int) -> bytes:
    """PNGs, JPEGs and WebPs of several sizes."""
    size = [(1280, 720), (720, 1280), (640, 640), (200, 120)][number % 4]
    kind = ("PNG", "JPEG", "WEBP")[number % 3]
    return encoded(scene(number, size), kind)


def turned(orientation: int, kind: str = "JPEG") -> bytes:
    """A picture whose upper left quarter is red when it is upright, stored as a camera with this orientation would."""
    upright = Image.new("RGB", (800, 400), "white")
    upright.paste((255, 0, 0), (0, 0, 400, 200))
    stored = {
        1: upright,
        2: upright.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: upright.transpose(Image.Transpose.ROTATE_180),
        4: upright.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: upright.transpose(Image.Transpose.TRANSPOSE),
        6: upright.transpose(Image.Transpose.ROTATE_90),
        7: upright.transpose(Image.Transpose.TRANSVERSE),
        8: upright.transpose(Image.Transpose.ROTATE_270),
    }[orientation]
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    exif[ExifTags.Base.Artist] = "canary-person"
    return encoded(stored, kind, exif=exif)


def png(width: int, height: int, rows: bytes, *, depth: int = 1) -> bytes:
    """A grey PNG with these compressed rows, whatever its header promises."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def bomb(side: int = 20_000) -> bytes:
    """A real one: 50 KB that become 400 million white pixels."""
    packer = zlib.compressobj(9)
    row = b"\0" + b"\xff" * (side // 8)
    return png(side, side, b"".join([*(packer.compress(row) for _ in range(side)), packer.flush()]))


def text_bomb() -> bytes:
    """A small picture with a comment that unpacks to 200 MB."""
    whole = encoded(Image.new("RGB", (8, 8), "green"))
    body = b"comment\0\0" + zlib.compress(b"\0" * 200_000_000, 9)
    name = b"zTXt"
    comment = struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return whole[:33] + comment + whole[33:]


def broken_exif() -> bytes:
    """A picture whose metadata is torn, and which every viewer shows."""
    whole = encoded(Image.new("RGB", (400, 200), "green"), "JPEG")
    torn = b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12"
    return whole[:2] + b"\xff\xe1" + struct.pack(">H", len(torn) + 2) + torn + whole[2:]
