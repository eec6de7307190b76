"""The pages, one module each: ``fields(view)`` are what can be changed there, ``page(view)`` is all of it."""
