"""Say what the results in results/ show of the papers' claims:

  python experiments/claims.py [--write]

results/claims.toml states each claim as comparisons of published cells. Their
numbers, intervals and verdicts follow from results/ alone: no images are
needed, and nothing is trained.

--write puts them into docs/results.md, between its marks, and draws the figures
of docs/images again: do so after new results.
"""

from pathlib import Path

import commandline
from absl import flags

CLAIMS = flags.DEFINE_string('claims', 'results/claims.toml', 'the claims')
WORKDIR = flags.DEFINE_string('workdir', 'results', 'what was run')
WRITE = flags.DEFINE_bool('write', False, 'replace docs and figures')


def main():
  from configs.tables.common import load_table
  from experiments.reproduction.claims import claims_page, write
  from fedjax_pfl.core import progress

  results = Path(WORKDIR.value)
  verdicts = write.judge(Path(CLAIMS.value), results, load_table)
  if WRITE.value:
    written = write.write(verdicts, results, commandline.ROOT)
    progress.log(f'Written: {", ".join(map(str, written))}')
  else:
    print(claims_page.as_text(verdicts))


if __name__ == '__main__':
  commandline.run(main)
