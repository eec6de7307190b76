"""How the book is printed: blocks are run, numbers are computed, pages of reference are written, when the book is built."""
