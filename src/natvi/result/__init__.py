"""What a fit gives back."""

from natvi.result.result import Result as Result
