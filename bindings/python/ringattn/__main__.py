import os
import sys

from ._info import main

try:
    status = main(sys.argv[1:])
    sys.stdout.flush()
except BrokenPipeError:  # whoever reads it has seen enough
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    status = 0
sys.exit(status)
