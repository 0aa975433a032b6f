"""The folder of this file goes on the import path, so that the tests of readers share ``reading``."""
