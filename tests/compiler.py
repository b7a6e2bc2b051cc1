"""How the tests compile."""

# XLA's older emitters compile in a third of the time. An option that an XLA
# does not know is ignored.
OLDER_EMITTERS = (
  '--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters'
)
