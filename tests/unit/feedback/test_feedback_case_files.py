"""Cases O01 to O11: files and encodings."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from conftest_feedback import answer, rank_row, rows_of, texts_of

from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.pair_report import iter_pairs
from nvtrader_rl_dagster.feedback.readers import FeedbackFileError
from nvtrader_rl_dagster.feedback.store import FeedbackStore
