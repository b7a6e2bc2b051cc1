"""Where compiled rows are stored, and the page that is written of them."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / 'results' / 'accelerators'
PAGE = ROOT / 'docs' / 'accelerators.md'
