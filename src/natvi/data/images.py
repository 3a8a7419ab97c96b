"""Pictures to classify: MNIST digits, Fashion-MNIST and CIFAR-10, as whole numbers from 0 to 255."""

import gzip
import lzma
from pathlib import Path
from typing import NamedTuple

import numpy as np

from natvi.data.external import data_file

IDX_SOURCE = "Put the four idx files of the data set there, packed with gzip, under their original names."
CIFAR_SOURCE = "Put the six .bin files of the binary version of CIFAR-10 there, packed with xz."
CIFAR_RECORD = 1 + 3 * 32 * 32


class Images(NamedTuple):
    """Images `(n, height, width, channels)` of bytes, and labels `(n,)`."""

    X: np.ndarray
    y: np.ndarray


def load_mnist() -> tuple[Images, Images]:
    """Handwritten digits: 60,000 images of 28 x 28 to train on and 10,000 to test.

    The files are not part of the package: see `natvi.data.external.data_folder`.

    Paper: Section 8.3 and Table 9.
    """
    return _idx("mnist", "train"), _idx("mnist", "t10k")


def load_fashion_mnist() -> tuple[Images, Images]:
    """Articles of clothing in the format of MNIST: what a net trained on digits has never seen."""
    return _idx("fashion_mnist", "train"), _idx("fashion_mnist", "t10k")


def load_cifar10() -> tuple[Images, Images]:
    """Colour photographs of ten classes: 50,000 images of 32 x 32 to train on and 10,000 to test.

    Paper: Section 8.3 and Table 9.
    """
    parts = [_cifar(data_file(f"cifar10/data_batch_{k}.bin.xz", CIFAR_SOURCE)) for k in range(1, 6)]
    train = Images(np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts]))
    return train, _cifar(data_file("cifar10/test_batch.bin.xz", CIFAR_SOURCE))


def _idx(folder: str, part: str) -> Images:
    images, labels = (
        data_file(f"{folder}/{part}-{kind}-ubyte.gz", IDX_SOURCE) for kind in ("images-idx3", "labels-idx1")
    )
    y = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=8)
    X = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16)
    return Images(X.reshape(len(y), 28, 28, 1), y)


def _cifar(path: Path) -> Images:
    records = np.frombuffer(lzma.decompress(path.read_bytes()), np.uint8).reshape(-1, CIFAR_RECORD)
    # a record is the label, then red, green and blue, each row by row
    X = np.ascontiguousarray(np.moveaxis(records[:, 1:].reshape(-1, 3, 32, 32), 1, 3))
    return Images(X, records[:, 0].copy())
