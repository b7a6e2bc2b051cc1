"""Names of the classes of the image sets, in the order of their numbers."""

CIFAR10 = (
  *('airplane', 'automobile', 'bird', 'cat', 'deer'),
  *('dog', 'frog', 'horse', 'ship', 'truck'),
)
# In the order of the alphabet (Krizhevsky 2009).
CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy
bridge bus butterfly camel can castle caterpillar cattle chair chimpanzee clock
cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange
orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper
snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
NAMES = {'cifar10': CIFAR10, 'cifar100': tuple(CIFAR100.split())}


def class_names(dataset: str, num_classes: int) -> tuple[str, ...]:
  """Return the names of the classes; numbers for other data sets."""
  return NAMES.get(dataset, tuple(map(str, range(num_classes))))
