"""The sections `model`, `training`, `dp`: what is trained, and how."""

from fedjax_pfl.client import optimisers
from fedjax_pfl.client.local_training import RULES
from fedjax_pfl.core import rules
from fedjax_pfl.core.norm_stats import NORM_STATISTICS
from fedjax_pfl.core.rules import Rule, count, is_int, one_of
from fedjax_pfl.federated.sampling import DEFAULT, FRACTION, SAMPLINGS
from fedjax_pfl.models.head_init import HEAD_BIASES, HEAD_INITS
from fedjax_pfl.models.module_task import PRECISIONS
from fedjax_pfl.models.ops.replace_layers import CONV_IMPLS
from fedjax_pfl.models.registry import MODELS
from fedjax_pfl.settings.field import (
  NOTHING,
  field,
  or_code,
  path,
  record,
)

CROSS_ENTROPY = 'cross_entropy'
DRAWN_SPEEDS = 'lognormal'


@record
class ModelSettings:
  """The architecture, and how its head begins.

  Attributes:
    name: the architecture; or a module of your own
    head_init: weights of the head; default: the model's own
    head_bias: bias of the head; default: the model's own
    norm_statistics: BatchNorm is tested by the test batch; running: by averages
      over training batches, which clients send; running_local: which they keep
      (SiloBN)
    conv_impl: how convolutions are computed; auto: gemm on a CPU; on a GPU in
      float32 gemm for convnet4, lax for mobilenet; else fused
    precision: float32 on every device; tf32: products with rounded inputs;
      mixed: bfloat16 activations, float32 parameters
    lora_rank: rank of adapters beside the kernels (LoRA); 0: none
    lora_targets: layers that have one; *: all with a kernel, but the head
    lora_alpha: alpha / rank is the factor of an adapter
  """

  name: str = field(
    'convnet4', or_code(one_of(MODELS, 'a known model')), name='model'
  )
  head_init: str = field(
    'default', one_of(HEAD_INITS, 'a way to begin the weights of the head')
  )
  head_bias: str = field(
    'default', one_of(HEAD_BIASES, 'a way to begin the bias of the head')
  )
  norm_statistics: str = field(
    'batch', one_of(NORM_STATISTICS, 'statistics by which BatchNorm is tested')
  )
  conv_impl: str = field(
    'auto', one_of(CONV_IMPLS, 'a way to compute convolutions'), NOTHING
  )
  precision: str = field(
    'float32',
    one_of(PRECISIONS, 'a precision', 'a dtype: bfloat16 is called mixed'),
  )
  lora_rank: int = field(
    0, count('dimensions', 'alpha was meant, or a sign', 0)
  )
  lora_targets: tuple[str, ...] = field(
    ('*',),
    rules.tuple_of(
      lambda value: isinstance(value, str) and bool(value),
      "patterns for paths of layers, such as 'block*/qkv'",
      'a single word in a config: write ("*",)',
    ),
  )
  lora_alpha: float = field(
    16.0, rules.above(0, 'a sign, or alpha / rank was meant')
  )


@record
class TrainingSettings:
  """Rounds, and what a client of the cohort does in one.

  Attributes:
    client_fraction: share of the clients that take part in a round; unseen ones
      do not count
    sampling: fixed: as many clients in each round; poisson: each joins with
      probability client_fraction; cyclic: dp.bands groups of clients take
      turns, each joins with dp.bands times that; or a sampler of your own
    dropout_rate: probability with which a client of the cohort fails and sends
      nothing
    client_speeds: steps a second of each client, in simulated time: none;
      lognormal, drawn with median 1; or a file of numbers
    speed_sigma: deviation of the logarithm of drawn speeds
    deadline: simulated seconds after which a round ends; 0: with its slowest
      client
    late_clients: drop: they send nothing; partial: they do the steps that fit
    buffer_size: asynchronous (FedBuff): the server moves after so many uploads,
      while client_fraction of the clients are at work; 0: in rounds
    total_epochs: over a client's data: rounds = floor(total_epochs /
      local_epochs)
    loss: what training minimises, a mean over examples; or a function of your
      own
    local_epochs: epochs of a client in a round
    rounds: given: total_epochs is not used; 0 with init_from: only evaluate
    batch_size: examples of a step
    learning_rate: in the first round
    lr_milestones: fractions of all rounds from which on the learning rate is a
      tenth
    lr_decay: factor of the learning rate in every round, from the first on
    optimizer: of the rounds; fine-tuning is SGD
    momentum: of SGD; beta_1 of Adam
    weight_decay: L2, or decoupled: adamw
    clip_norm: largest norm of a step's gradient, or of each part of it that has
      an optimiser of its own; 0: any
    aggregation: weights of clients in a mean: 1 / m, or examples: n_i / n
    server_optimizer: takes the mean change of a round as its gradient; none:
      the mean itself
    server_learning_rate: of that optimiser; 1 suits sgd, 0.01 the others
    server_momentum: of that optimiser, beta_1
    compression: of what clients send; none: as it is
    compression_levels: of qsgd, beside 0 and the sign: 7 are 4 bits a number
    compression_share: of topk: which part of the numbers of a leaf is sent
    around: a wrapper of your own around the method
    server_data_fraction: share of all training examples that the server trains
      on
    server_trainable: what the server trains, for an epoch a round; or body
  """

  client_fraction: float = field(0.1, FRACTION)
  sampling: str = field(
    DEFAULT, or_code(one_of(SAMPLINGS, 'a way to draw a cohort'))
  )
  dropout_rate: float = field(
    0.0,
    rules.interval('[0, 1)', 'a percentage; at 1 none sends', 'a probability'),
  )
  client_speeds: str = field(
    'none', path('none, lognormal, or a text file of a number for each client')
  )
  speed_sigma: float = field(
    1.0, rules.at_least(0, 'a sign; 0 is one speed for all')
  )
  deadline: float = field(0.0, rules.at_least(0, 'a sign; 0 waits for all'))
  late_clients: str = field(
    'drop',
    one_of(('drop', 'partial'), 'what becomes of clients that would be late'),
  )
  buffer_size: int = field(
    0, count('uploads', 'a sign; 0 is rounds that wait', 0)
  )
  total_epochs: int = field(
    320, count('epochs', 'rounds were meant: they have a field of that name')
  )
  loss: str = field(
    CROSS_ENTROPY, or_code(one_of((CROSS_ENTROPY,), 'the loss of an example'))
  )
  local_epochs: int = field(10, RULES['epochs'])
  rounds: int | None = field(
    None,
    Rule(
      lambda value: value is None or (is_int(value) and value >= 0),
      'a whole number of rounds, 1 or more (0 with init_from), or None: '
      'total_epochs / local_epochs',
      'epochs, or a fraction, instead of rounds',
    ),
  )
  batch_size: int = field(50, RULES['batch_size'])
  learning_rate: float = field(0.1, optimisers.LEARNING_RATE, traced=True)
  lr_milestones: tuple[float, ...] = field((0.5, 0.75), optimisers.DROPS)
  lr_decay: float = field(
    1.0,
    rules.interval('(0, 1]', 'what is taken off: 0.005 for 0.995'),
    traced=True,
  )
  optimizer: str = field('sgd', RULES['optimizer'])
  momentum: float = field(0.9, RULES['momentum'], traced=True)
  weight_decay: float = field(0.0, RULES['weight_decay'], traced=True)
  clip_norm: float = field(0.0, RULES['clip_norm'])
  aggregation: str = field('uniform', RULES['aggregation'])
  server_optimizer: str = field(
    'none',
    one_of(
      ('none', 'sgd', 'adagrad', 'adam', 'yogi'), 'an optimiser of the server'
    ),
  )
  server_learning_rate: float = field(
    1.0, rules.above(0, 'the learning rate of clients, or a sign')
  )
  server_momentum: float = field(0.9, RULES['momentum'])
  compression: str = field(
    'none', one_of(('none', 'qsgd', 'topk', 'drive'), 'a compressor of uploads')
  )
  compression_levels: int = field(
    7,
    Rule(
      lambda value: is_int(value) and 1 <= value <= 127,
      'a whole number of levels, 1 to 127: a number has 8 bits at most',
      'bits instead of levels: 7 levels with a sign are 4 bits',
    ),
  )
  compression_share: float = field(
    0.05,
    rules.interval(
      '(0, 1]', 'a percentage, or a number of coordinates', 'a share'
    ),
  )
  around: str = field('', or_code(Rule(lambda value: value == '', 'nothing')))
  server_data_fraction: float = field(
    0.0, rules.share('a percentage, or a number of examples')
  )
  server_trainable: str = field(
    'full', one_of(('full', 'body'), 'a part that the server may train')
  )

  @property
  def num_rounds(self) -> int:
    """Return the rounds: given, or floor(total_epochs / local_epochs)."""
    whole = self.total_epochs // self.local_epochs
    return whole if self.rounds is None else self.rounds


@record
class PrivacySettings:
  """Differential privacy of clients, by noise in the sum of their changes.

  Attributes:
    clip: largest norm of what a client changes in a round; 0: no privacy
    clip_quantile: the clip follows this quantile of the norms; 0: it stays
    noise_multiplier: deviation of the new noise in a sum, in clips; 0: as
      dp.epsilon needs
    epsilon: budget of the run, from which its noise follows
    delta: of the budget; far below 1 / num_clients
    bands: of noise that takes back some of the rounds before, with
      sampling=cyclic; 1: independent
    noise_seed: noise and cohorts follow from this number, so that a test can
      repeat them: whoever guesses it can remove the noise; None: from a secret
  """

  clip: float = field(0.0, rules.at_least(0, 'a sign; 0 is no privacy'))
  clip_quantile: float = field(
    0.0, rules.interval('[0, 1)', 'a percentage; 0 keeps the clip')
  )
  noise_multiplier: float = field(
    0.0, rules.at_least(0, 'a sign; 0 is the noise of dp.epsilon')
  )
  epsilon: float = field(
    0.0, rules.at_least(0, 'a sign; 0 is the budget of dp.noise_multiplier')
  )
  delta: float = field(
    0.0, rules.interval('[0, 1)', 'a percentage, or an exponent')
  )
  bands: int = field(
    1, count('bands', '0 was meant for independent noise, which is 1')
  )
  noise_seed: int | None = field(
    None,
    count('a seed', 'a list of seeds, or a sign', 0).or_none('from a secret'),
  )
