"""From the archives that the authors of image sets publish to arrays.

archives      where they are, with sizes and SHA-256
download      a file from the network, resumed and checked
formats       the bytes of an archive -> arrays
tfds_order    the order in which TensorFlow Datasets stores examples
prepare       all of it, for the sets that are asked for

TensorFlow is not needed: the archives are rows of bytes.
"""
