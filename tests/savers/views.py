"""A save in memory, as a layout sees it."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Save:
    """A :class:`slurm_dispatch.savers.view.SaveView` of these files; one called ``""`` is the save itself."""

    def __init__(self, files: Mapping[str, bytes], name: str = "checkpoint-10") -> None:
        self.files = dict(files)
        self.name = name
        self.single = list(files) == [""]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by path."""
        return {path: len(content) for path, content in self.files.items()}

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """As the real ones."""
        try:
            content = self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None
        return content[offset:] if length is None else content[offset : offset + length]


def zipped(content: bytes = b"x" * 100) -> bytes:
    """What ``torch.save`` writes, as far as its structure goes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(zipfile.ZipInfo("archive/data.pkl"), content)
    return out.getvalue()


def safetensors(count: int = 8) -> bytes:
    """One tensor of so many bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [count], "data_offsets": [0, count]}}).encode()
    return len(header).to_bytes(8, "little") + header + b"\1" * count
