"""From parallel text files to a data directory: tokenize, learn BPE, split, clean, binarize."""

from nmtdeep.preprocessing.procedure import preprocess
from nmtdeep.preprocessing.progress import Progress
from nmtdeep.preprocessing.report import PreprocessingReport, SplitReport

__all__ = ["PreprocessingReport", "Progress", "SplitReport", "preprocess"]
