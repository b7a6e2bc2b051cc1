"""The picture of a method: which layers travel, and which a client keeps.

One drawing for all methods, from the messages of its stages. Its colours have
enough contrast on white and on a dark page.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape

import jax

from experiments.method_pages.table import Traced
from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Params, PyTree

SENT, KEPT, FIXED = '#0072B2', '#00855F', '#767676'
LEGEND = {
  SENT: 'trained and sent back',
  KEPT: 'kept by the client',
  FIXED: 'sent to the client alone: frozen on the server',
}
LEFT, CELL, ROW, RIGHT = 132, 56, 30, 150


def layers_in(tree: PyTree, model: Params) -> tuple[dict[str, str], list[str]]:
  """Return {layer: label} of a model's layers in a tree, and other leaves.

  A label tells how often a layer is there, or which of its leaves are.
  """
  names = trees.leaf_names(tree)
  sizes = [leaf.size for leaf in jax.tree.leaves(tree)]
  copies, rest = {}, {*names}
  shapes = zip(trees.leaf_names(model), jax.tree.leaves(model), strict=True)
  for leaf, shape in shapes:
    same = [n for n in names if n == leaf or n.endswith(f'/{leaf}')]
    rest -= {*same}
    total = sum(sizes[names.index(name)] for name in same)
    layer, _, part = leaf.rpartition('/')
    copies.setdefault(layer, {})[part] = total / shape.size
  labels = {}
  for layer, parts in copies.items():
    most = max(parts.values())
    there = [part for part, number in parts.items() if number]
    if 0 < len(there) < len(parts):
      labels[layer] = ', '.join(there)
    elif there:
      labels[layer] = f'× {most:g}' if most > 1 else ''
  last = [name.rpartition('/')[2] for name in names if name in rest]
  others = ['a number' if not n or n.isdigit() else n for n in last]
  return labels, list(dict.fromkeys(others))


def picture(stages: Sequence[Traced], model: Params) -> str:
  """Return the picture in SVG: three rows of layers for every stage."""
  layers = sorted(
    layers_in(model, model)[0],
    key=lambda layer: (layer == 'head', layer[-1], layer.startswith('bn')),
  )
  places = {layer: LEFT + CELL * at for at, layer in enumerate(layers)}
  end = LEFT + CELL * len(layers)
  width, parts, y = end + RIGHT, [], 8
  for stage in stages:
    head = stage.stage if len(stages) > 1 else ''
    parts += [text(4, y + 14, head, ' font-weight="bold"')]
    parts += [centred(x + CELL / 2, y + 14, name) for name, x in places.items()]
    y += 22
    for label, cells, others in rows(stage, model):
      parts.append(text(4, y + 19, label))
      for layer, x in places.items():
        colour, note = cells.get(layer, ('none', ''))
        parts.append(
          f'<rect x="{x + 2}" y="{y + 2}" width="{CELL - 4}" '
          f'height="{ROW - 4}" rx="3" fill="{colour}" stroke="#808080" '
          f'stroke-opacity="{0 if note or colour != "none" else 0.5}"/>'
        )
        if note:
          parts.append(centred(x + CELL / 2, y + 19, note, ' fill="#fff"'))
      more = f'+ {", ".join(others)}' * bool(others)
      parts.append(text(end + 6, y + 19, more))
      y += ROW
    y += 10
  x = 4
  for colour, meaning in LEGEND.items():
    parts.append(
      f'<rect x="{x}" y="{y + 2}" width="14" height="14" rx="3" '
      f'fill="{colour}"/>'
    )
    parts.append(text(x + 20, y + 14, meaning))
    x += 44 + 6.5 * len(meaning)
  lines = '\n'.join(part for part in parts if part)
  return (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
    f'height="{y + 24}" viewBox="0 0 {width} {y + 24}" '
    f'font-family="sans-serif" font-size="12" fill="#808080">\n'
    f'{lines}\n</svg>\n'
  )


def rows(stage: Traced, model: Params):
  """Yield the label of each row, {layer: (colour, note)} and other leaves."""
  sent = stage.messages
  (down, more_down), (up, more_up), (kept, more_kept) = (
    layers_in(tree, model) for tree in (sent.down, sent.up, sent.state)
  )
  used = {*up, *kept}
  down = {k: (SENT if k in used else FIXED, n) for k, n in down.items()}
  yield 'server → client', down, more_down
  yield 'client → server', {k: (SENT, n) for k, n in up.items()}, more_up
  yield 'client keeps', {k: (KEPT, n) for k, n in kept.items()}, more_kept


def text(x: float, y: float, line: str, style: str = '') -> str:
  return f'<text x="{x:g}" y="{y}"{style}>{escape(line)}</text>' * bool(line)


def centred(x: float, y: float, line: str, style: str = '') -> str:
  return text(x, y, line, f' text-anchor="middle"{style}')
