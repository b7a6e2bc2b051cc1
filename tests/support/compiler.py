"""How the tests compile, and how often."""

import contextlib

from jax import monitoring

# XLA's older emitters compile in a third of the time, a program that is not cut
# into 32 parts in four fifths, one that is not ordered for several cores in 19
# of 20 parts. An extra option that an XLA does not know is ignored.
QUICK = (
  '--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters '
  '--xla_cpu_parallel_codegen_split_count=1 '
  '--xla_cpu_enable_concurrency_optimized_scheduler=false'
)


@contextlib.contextmanager
def counting():
  """Give a list that grows by the name of every program compiled."""
  names = []

  def listen(event, seconds, **about):
    del seconds
    if event.endswith('backend_compile_duration'):
      names.append(about.get('fun_name'))

  monitoring.register_event_duration_secs_listener(listen)
  try:
    yield names
  finally:
    monitoring.unregister_event_duration_listener(listen)
