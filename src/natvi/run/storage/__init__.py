"""Files of fits: written whole or not at all, read without running code, and checkpoints to go on from."""

from natvi.run.storage.file_format import FORMAT_VERSION as FORMAT_VERSION
from natvi.run.storage.file_format import StorageError as StorageError
from natvi.run.storage.file_format import StorageWriteError as StorageWriteError
from natvi.run.storage.file_format import read as read
from natvi.run.storage.file_format import write as write
