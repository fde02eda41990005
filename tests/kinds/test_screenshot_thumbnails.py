"""`screenshot_thumbnails`: what becomes of each kind of image, and the same thumbnails whatever happens on the way."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from functions.worker.kinds import screenshot_thumbnails
from functions.worker.kinds.screenshot_thumbnails import BOX, IMAGES_PER_CHUNK, Unusable, process_chunk, thumbnail
from shared.errors import BadPayload, StorageUnavailable
from shared.worker.message import MAX_OUTPUT_BYTES
from tests.content import images
from tests.kinds.chunks import FakeContext, a_job, run_to_end


def opened(body: bytes) -> Image.Image:
    return Image.open(io.BytesIO(body))


def over(files: dict[str, bytes]) -> FakeContext:
    context = FakeContext()
    context.blobs.objects.update(files)
    return context


def made(context: FakeContext) -> dict[str, bytes]:
    return {name: body for name, body in context.blobs.objects.items() if name.startswith("thumbnails/")}


def index_of(context: FakeContext) -> list[dict[str, Any]]:
    (index,) = [body for name, body in made(context).items() if name.endswith("/index.json")]
    images_of_index: list[dict[str, Any]] = json.loads(index)["images"]
    return images_of_index


# -- one image


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize(("size", "small"), [((1280, 720), (320, 180)), ((90, 900), (32, 320)), ((30, 20), (30, 20))])
def test_a_thumbnail_is_a_png_that_fits_into_the_box_and_is_never_enlarged(
    kind: str, size: tuple[int, int], small: tuple[int, int]
) -> None:
    body, size_made = thumbnail(images.encoded(images.scene(1, size), kind))
    assert (size_made, opened(body).size, opened(body).format) == (small, small, "PNG")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"])
def test_every_mode_of_a_picture_keeps_its_light_and_dark(mode: str) -> None:
    picture = Image.new("L", (800, 400), 255)
    picture.paste(0, (400, 0, 800, 400))
    if mode == "I;16":
        picture = Image.frombytes("I;16", (800, 400), b"".join(bytes([0, grey]) for grey in picture.tobytes()))
    else:
        picture = picture.convert(mode)
    body, _ = thumbnail(images.encoded(picture, "JPEG" if mode == "CMYK" else "PNG"))
    grey = opened(body).convert("L")
    assert grey.getpixel((40, 80)) in range(250, 256)
    assert grey.getpixel((280, 80)) in range(6)


def test_transparency_stays_also_where_a_palette_holds_it() -> None:
    picture = Image.new("RGBA", (800, 400), (0, 0, 0, 0))
    picture.paste((200, 30, 30, 255), (0, 0, 400, 400))
    for encoded in (images.encoded(picture), images.encoded(picture.quantize(4)), images.encoded(picture, "GIF")):
        alpha = opened(thumbnail(encoded)[0]).getchannel("A")
        assert (alpha.getpixel((40, 80)), alpha.getpixel((280, 80))) == (255, 0)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", images.ORIENTATIONS)
def test_a_turned_picture_is_upright_in_its_thumbnail(orientation: int, kind: str) -> None:
    body, size = thumbnail(images.turned(orientation, kind))
    assert size == (320, 160)
    picture = opened(body).convert("RGB")
    corners = [picture.getpixel(at) for at in ((80, 40), (240, 40), (80, 120), (240, 120))]
    reds = [isinstance(pixel, tuple) and pixel[1] < 60 for pixel in corners]
    assert reds == [True, False, False, False]


def test_nothing_of_the_originals_metadata_is_carried_along() -> None:
    body, _ = thumbnail(images.turned(6, "PNG"))
    assert b"canary-person" not in body
    assert opened(body).info == {}


def test_broken_metadata_does_not_cost_the_picture() -> None:
    assert thumbnail(images.broken_exif())[1] == (320, 160)


def test_the_first_frame_stands_for_an_animation() -> None:
    frames = [Image.new("RGB", (400, 400), colour) for colour in ("green", "red", "blue")]
    body, _ = thumbnail(images.encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert opened(body).convert("RGB").getpixel((100, 100)) == (0, 128, 0)


BAD = [
    (b"", "not_an_image"),
    (b"\x89PNG\r\n\x1a\n", "not_an_image"),
    (b"no image at all" * 100, "not_an_image"),
    (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not_an_image"),  # a decoder that starts a program
    (images.encoded(Image.new("RGB", (9, 9)), "TIFF"), "not_an_image"),
    (images.screenshot(0)[:5000], "broken"),
    (images.screenshot(1)[:5000], "broken"),
    (images.png(4000, 4000, b"not deflated" * 9_000), "broken"),
    (images.png(0, 10, b""), "not_an_image"),
    (images.png(60_000, 60_000, b""), "too_many_pixels"),  # by its header alone
    (images.text_bomb(), "broken"),
]


@pytest.mark.parametrize(("data", "outcome"), BAD)
def test_what_is_no_usable_image_has_a_named_outcome(data: bytes, outcome: str) -> None:
    with pytest.raises(Unusable) as raised:
        thumbnail(data)
    assert raised.value.outcome == outcome


def test_a_decompression_bomb_is_told_by_its_header_and_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise AssertionError("the bomb was unpacked")

    monkeypatch.setattr(Image.Image, "load", load)
    with pytest.raises(Unusable, match="too_many_pixels"):
        thumbnail(images.bomb())


@cache
def whole() -> bytes:
    return images.encoded(images.scene(3, (64, 48)))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=8), st.integers(1, 4000))
def test_no_damage_to_a_file_raises_anything_else(damage: list[tuple[int, int]], length: int) -> None:
    data = bytearray(whole()[:length])
    for at, value in damage:
        if at < len(data):
            data[at] = value
    try:
        _, size = thumbnail(bytes(data))
    except Unusable:
        return
    assert size <= BOX


# -- a job

FILES = {f"screenshots/m1/{number}": images.screenshot(number) for number in range(9)}
FILES |= {"screenshots/m1/broken": FILES["screenshots/m1/0"][:9000], "screenshots/m1/bomb": images.bomb()}
KEYS = [*FILES, "screenshots/m1/gone"]
JOB = a_job({"screenshots": KEYS}, job_id="Köln vs. 1. FC – Halbfinale/screenshots")


def test_every_screenshot_stands_in_the_index_with_its_thumbnail_or_with_what_was_wrong_with_it() -> None:
    context = over(FILES)
    assert run_to_end(process_chunk, JOB, context) == ["", "0004", "0008"]
    index = index_of(context)
    assert [image["screenshot"] for image in index] == KEYS
    assert [image["outcome"] for image in index] == ["done"] * 9 + ["broken", "too_many_pixels", "missing"]
    for image in index[:9]:
        assert opened(context.blobs.objects[image["thumbnail"]]).size == (image["width"], image["height"])
    assert len(made(context)) == 9 + 1
    assert context.counted == {"thumbnails": 9, "thumbnails_failed": 3}


def test_killed_at_any_chunk_the_objects_are_byte_for_byte_the_same() -> None:
    context = over(FILES)
    chunks = len(run_to_end(process_chunk, JOB, context))
    for number in range(chunks):
        killed = over(FILES)
        run_to_end(process_chunk, JOB, killed, dies_at=number)
        assert made(killed) == made(context)


def test_a_file_above_the_limit_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screenshot_thumbnails, "MAX_FILE_BYTES", 1000)
    context = over({"a": FILES["screenshots/m1/0"]})
    run_to_end(process_chunk, a_job({"screenshots": ["a"]}), context)
    assert index_of(context) == [{"screenshot": "a", "outcome": "file_too_large"}]


def test_a_store_that_does_not_answer_is_no_ones_outcome() -> None:
    context = over(FILES)

    def unavailable(*_: object, **__: object) -> bytes:
        raise StorageUnavailable

    context.blobs.read = unavailable  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable):
        process_chunk(JOB, "", context)


def test_jobs_of_almost_one_name_have_thumbnails_of_their_own() -> None:
    context = over(FILES)
    for job_id in ("Köln", "Ko\u0308ln", "köln", "../Köln"):
        run_to_end(process_chunk, a_job({"screenshots": KEYS[:1]}, job_id=job_id), context)
    assert len(made(context)) == 4 * 2


def test_a_match_without_screenshots_has_an_empty_index() -> None:
    context = over({})
    assert run_to_end(process_chunk, a_job({"screenshots": []}), context) == [""]
    assert index_of(context) == []


def test_the_longest_list_of_the_longest_keys_has_outputs_that_fit() -> None:
    image = {"screenshot": "\u20ac" * 341, "outcome": "too_many_pixels", "thumbnail": "t" * 90, "width": 1, "height": 1}
    assert len(json.dumps([image] * IMAGES_PER_CHUNK)) < MAX_OUTPUT_BYTES


@pytest.mark.parametrize(
    "payload",
    [{}, [], None, {"screenshots": "a"}, {"screenshots": [1]}, {"screenshots": [""]}, {"screenshots": ["a"] * 1001}],
)
def test_a_payload_without_a_list_of_keys_is_the_jobs_failure(payload: Any) -> None:
    with pytest.raises(BadPayload, match=r"screenshots|object"):
        process_chunk(a_job(payload), "", over({}))
