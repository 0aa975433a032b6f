"""The folder of this file goes on the import path, so that tests share ``builders``."""
