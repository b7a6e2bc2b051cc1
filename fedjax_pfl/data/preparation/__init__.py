"""From the archives that the authors of image sets publish to arrays.

download      where they are; a file from the network, checked
formats       the bytes of an archive -> arrays, in the order of tfds; a folder
              of files in MNIST's format that the user has
prepare       all of it, for the sets that are asked for
"""
