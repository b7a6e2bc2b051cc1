"""Fields of version 0.1 and what they are called now, for one sentence each."""

RENAMED = {
  'start': 'init_from',
  'examples': 'max_train_examples',
  'inputs': 'preprocessing',
  'lowering': 'conv_impl',
  'clients': 'num_clients',
  'shards': 'shards_per_client',
  'beta': 'dirichlet_beta',
  'min_size': 'dirichlet_min_size',
  'least_size': 'min_client_size',
  'most_size': 'max_client_size',
  'test_shards': 'test_shards_per_client',
  'test_share': 'test_fraction',
  'fraction': 'client_fraction',
  'lr_drops': 'lr_milestones',
  'server_share': 'server_data_fraction',
  'server_part': 'server_trainable',
  'finetune.part': 'finetune.trainable',
  'support': 'adapt_on',
  'global_test': 'eval_global_model',
  'diverged': 'on_divergence',
  'chunk': 'clients_per_chunk',
}
RENAMED_HP = {'update_part': 'trainable', 'shared_part': 'shared'}
