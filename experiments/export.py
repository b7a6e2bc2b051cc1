"""Write one model of a finished run to a file: for numpy, PyTorch or ONNX.

  fedjax-pfl export --run=runs/a --client=3 --out=model.npz

--client=server is the server's model. --view is a model of the client before or
after personalisation, by default the one that the result counts. The file has
an array for each parameter, by its path, and a JSON header. A dozen lines
in docs/howto/export.md use it without this package. --to=torch writes
.safetensors, and beside it a module of PyTorch that reads it; --to=onnx a graph
from images to logits. --private writes the
server's model of a private run, and nothing that its budget does not cover.
Where the data have moved: --config.data_dir=...
"""

import commandline
from absl import flags

RUN = flags.DEFINE_string('run', None, 'the directory of a finished run')
CLIENT = flags.DEFINE_string('client', None, 'its number, or server')
PRIVATE = flags.DEFINE_bool('private', False, 'what may be released, no more')
VIEW = flags.DEFINE_string('view', '', 'initial, finetuned, ...')
TO = flags.DEFINE_string('to', 'npz', 'npz, torch or onnx')
OUT = flags.DEFINE_string(
  'out', None, 'the file, a new one: .npz, .safetensors or .onnx'
)


def main(overrides):
  from fedjax_pfl.analysis.export import export
  from fedjax_pfl.core import progress
  from fedjax_pfl.training import compile_cache

  compile_cache.cache_programs(progress.log)
  client = CLIENT.value or 'server' * PRIVATE.value
  export(
    *(RUN.value, client, VIEW.value, OUT.value, progress.log),
    *(commandline.make_edit(overrides), PRIVATE.value, TO.value),
  )


if __name__ == '__main__':
  commandline.run(main, required=['run', 'out'])
