"""Predict the image files of a folder, or the rows of a table:

  fedjax-pfl predict --run=runs/a --images=FOLDER --client=hospital3 --out=p.csv

--run may be a file that `fedjax-pfl export` wrote, which needs no --client. A
row of the CSV has a file, its class, and the probability of each class. Of a
run of a table --images is another file with its columns, label and client or
not; its rows are scaled as in training. --view
is a model of the client before or after personalisation, by default the one
that the result counts. Where the data have moved: --config.data_dir=...
"""

import commandline
from absl import flags

RUN = flags.DEFINE_string('run', None, 'a finished run, or an exported file')
IMAGES = flags.DEFINE_string(
  'images', None, 'the folder of image files, or a .csv'
)
CLIENT = flags.DEFINE_string('client', '', 'its name or number, or server')
VIEW = flags.DEFINE_string('view', '', 'initial, finetuned, ...')
OUT = flags.DEFINE_string('out', None, 'the file: .csv, a new one')


def main(overrides):
  from fedjax_pfl.analysis.predict import predict_folder
  from fedjax_pfl.core import progress
  from fedjax_pfl.training import compile_cache

  compile_cache.cache_programs(progress.log)
  predict_folder(
    *(RUN.value, IMAGES.value, OUT.value, CLIENT.value, VIEW.value),
    *(progress.log, commandline.make_edit(overrides)),
  )


if __name__ == '__main__':
  commandline.run(main, required=['run', 'images', 'out'])
