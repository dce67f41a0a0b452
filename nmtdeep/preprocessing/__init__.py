"""From parallel text files to a data directory: tokenise, learn BPE, split, clean, binarise."""

from nmtdeep.preprocessing.procedure import preprocess
from nmtdeep.preprocessing.progress import Progress
from nmtdeep.preprocessing.report import PreprocessingReport, SplitReport

__all__ = ["PreprocessingReport", "Progress", "SplitReport", "preprocess"]
