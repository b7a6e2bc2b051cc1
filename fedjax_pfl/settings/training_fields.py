"""The sections `model` and `training`: what is trained, and in which rounds."""

from fedjax_pfl.client import optimisers
from fedjax_pfl.core import rules
from fedjax_pfl.core.norm_stats import NORM_STATISTICS
from fedjax_pfl.core.records import NOTHING, field, or_code, record
from fedjax_pfl.core.rules import Rule, count, is_int, one_of
from fedjax_pfl.federated.sampling import DEFAULT, FRACTION, SAMPLINGS
from fedjax_pfl.models.head_init import HEAD_BIASES, HEAD_INITS
from fedjax_pfl.models.module_task import PRECISIONS
from fedjax_pfl.models.ops.replace_layers import CONV_IMPLS
from fedjax_pfl.models.registry import MODELS

CROSS_ENTROPY = 'cross_entropy'
PATTERNS = rules.tuple_of(
  lambda value: isinstance(value, str) and bool(value),
  "patterns for paths of layers, such as 'block*/qkv'",
  'a single word in a config: write ("*",)',
)
ROUNDS = Rule(
  lambda value: value is None or (is_int(value) and value >= 0),
  'a whole number of rounds, 1 or more (0 with init_from), or None: '
  'total_epochs / local_epochs',
)


@record()
class ModelSettings:
  """The architecture, and how its head begins.

  Args:
    name: the architecture; or a module of your own
    head_init: weights of the head; default: the model's own
    head_bias: bias of the head; default: the model's own
    norm_statistics: of BatchNorm in testing; batch: those of the test batch;
      running: averages over training batches, which clients send;
      running_local: averages that clients keep (SiloBN); frozen: those of
      init_from, in training, too
    model_image_size: images are scaled to so many pixels a side on the device,
      as the last step before the model; 0: they stay as they are
    frozen_features: the model of init_from but its head is frozen, and computes
      the features of all images once; the method trains the head
    conv_impl: how convolutions are computed; auto: gemm on a CPU; on a GPU in
      float32 gemm for most models; else fused
    precision: float32 on every device; tf32: products with rounded inputs;
      mixed: bfloat16 activations, float32 parameters
    lora_rank: rank of adapters beside the kernels (LoRA); 0: none
    lora_targets: layers that have one; *: all with a kernel, but the head
    lora_alpha: alpha / rank is the factor of an adapter
  """

  name: str = field(
    'convnet4', or_code(one_of(MODELS, 'a known model')), name='model'
  )
  head_init: str = field('default', one_of(HEAD_INITS))
  head_bias: str = field('default', one_of(HEAD_BIASES))
  norm_statistics: str = field('batch', one_of(NORM_STATISTICS))
  model_image_size: int = field(0, count('pixels', smallest=0))
  frozen_features: bool = field(
    False, rules.boolean(), needs=('init_from', 'FILE.safetensors')
  )
  conv_impl: str = field('auto', one_of(CONV_IMPLS), NOTHING)
  precision: str = field(
    'float32',
    one_of(PRECISIONS, 'a precision', 'a dtype: bfloat16 is called mixed'),
  )
  lora_rank: int = field(0, count('dimensions', smallest=0))
  lora_targets: tuple[str, ...] = field(
    ('*',), PATTERNS, needs=('lora_rank', 8)
  )
  lora_alpha: float = field(16.0, rules.above(0), needs=('lora_rank', 8))


@record()
class TrainingSettings:
  """The rounds: how many, who takes part, and the learning rate of each.

  Args:
    client_fraction: share of the clients that take part in a round; unseen ones
      do not count
    sampling: fixed: as many clients in each round; poisson: each joins with
      probability client_fraction; cyclic: dp.bands groups of clients take
      turns, each joins with dp.bands times that; or a sampler of your own
    total_epochs: over a client's data: rounds = floor(total_epochs /
      local_epochs)
    rounds: given: total_epochs is not used; 0 with init_from: only evaluate
    learning_rate: in the first round
    lr_milestones: fractions of all rounds from which on the learning rate is a
      tenth
    lr_decay: factor of the learning rate in every round, from the first on
    loss: what training minimises, a mean over examples; or a function of your
      own
    around: a wrapper of your own around the method
  """

  client_fraction: float = field(0.1, FRACTION)
  sampling: str = field(DEFAULT, or_code(one_of(SAMPLINGS)))
  total_epochs: int = field(
    320, count('epochs', 'rounds were meant: they have a field of that name')
  )
  rounds: int | None = field(None, ROUNDS)
  learning_rate: float = field(0.1, optimisers.LEARNING_RATE, traced=True)
  lr_milestones: tuple[float, ...] = field((0.5, 0.75), optimisers.DROPS)
  lr_decay: float = field(
    1.0,
    rules.interval('(0, 1]', 'what is taken off: 0.005 for 0.995'),
    traced=True,
  )
  loss: str = field(CROSS_ENTROPY, or_code(one_of((CROSS_ENTROPY,))))
  around: str = field('', or_code(Rule(lambda value: value == '', 'nothing')))
